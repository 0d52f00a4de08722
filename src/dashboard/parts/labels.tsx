// States as small words with a dot; colour is never the only sign.

import type { ComponentChildren } from 'preact';
import type { Session } from '#client/client.ts';
import { fromPusd } from '#protocol/money.ts';
import { formatShortCount } from '#protocol/text/short-count.ts';
import { isSimulated } from '#protocol/text/simulated.ts';
import { useNow } from '../data/queries.ts';
import {
  absoluteTime,
  addUsd,
  computeShare,
  duration,
  exactUsd,
  formatCount,
  modelName,
  relativeTime,
  shortUsd,
} from '../format/format.ts';

export type Tone = 'plain' | 'live' | 'ok' | 'warn' | 'bad' | 'worker';

export function Badge({ tone = 'plain', children }: { readonly tone?: Tone; readonly children: ComponentChildren }) {
  return <span class={`badge ${tone}`}>{children}</span>;
}

/** Beside what a script answered: its tokens are invented, and its money was not spent (08 §5). */
export function Simulated() {
  return (
    <span class="badge simulated" title="A script answered in place of a model, at example prices. Nothing was spent.">
      simulated
    </span>
  );
}

/** Whether a script answers for the model; null: no model is known yet. */
export function isScripted(model: string | null): boolean {
  return model !== null && isSimulated(model);
}

/** Whether a script answered or will answer: a session whose first call was refused has no call yet. */
export function isSessionSimulated(session: Session | null | undefined): boolean {
  return session != null && (session.has_simulated_calls || isScripted(session.last_model));
}

const TONES: Readonly<Record<string, Tone>> = {
  running: 'live',
  in_flight: 'live',
  cancelling: 'plain',
  interrupted: 'warn',
  failed: 'bad',
  cancelled: 'plain',
  completed: 'ok',
  waiting: 'warn',
  'waiting for budget': 'warn',
  'waiting for approval': 'warn',
};

/** A state of a session, a turn or a delegation. */
export function State({ state }: { readonly state: string }) {
  return (
    <span class={`state ${TONES[state] ?? 'plain'}`}>
      <span class="dot" aria-hidden="true" />
      {state.replaceAll('_', ' ')}
    </span>
  );
}

/** In place of a value that is not known or does not apply. */
export function NoValue() {
  return <span class="quiet">–</span>;
}

/** A model without its provider, whole on hover. */
export function ModelName({ id }: { readonly id: string | null }) {
  if (id === null) return <NoValue />;
  return <span title={id}>{modelName(id)}</span>;
}

// How a session came in: the door, the client behind it, and the key of its calls (19 §1). The plain API has no label.

export const SOURCE_NAMES: Readonly<Record<Session['door'], string>> = {
  api: 'API',
  gateway: 'Gateway',
  mcp: 'MCP',
  acp: 'Editor',
};

/** In a list: the client's own name, else the door's. */
export function SourceBadge({ session }: { readonly session: Session }) {
  const { door, client } = session;
  if (client === null && door === 'api') return null;
  return (
    <span class="door" title={listSourceFacts(session).join(', ')}>
      <Badge>{client ?? SOURCE_NAMES[door]}</Badge>
    </span>
  );
}

/** On the session's own page: all that is known. */
export function SourceFacts({ session }: { readonly session: Session }) {
  const facts = listSourceFacts(session);
  if (facts.length === 0) return null;
  return (
    <>
      {facts.map((fact) => (
        <span key={fact} class="door" title={fact}>
          {fact}
        </span>
      ))}
    </>
  );
}

function listSourceFacts({ door, client, caller }: Session): readonly string[] {
  const facts: string[] = [];
  if (door !== 'api') facts.push(`Source: ${SOURCE_NAMES[door]}`);
  if (client !== null) facts.push(`Client: ${client}`);
  if (caller !== '') facts.push(`Caller: ${caller}`);
  return facts;
}

// Money, counts and tokens in tabular figures, with every digit on hover.

/** The class of a figure; zeros stand back. */
export function figureClass(isZero: boolean): string {
  if (isZero) return 'number quiet';
  return 'number';
}

/** An amount as the server sent it. `exact` shows every digit in place. */
export function Money({ usd, exact = false }: { readonly usd: string; readonly exact?: boolean }) {
  const full = exactUsd(usd);
  return (
    <span class={figureClass(usd === '0')} title={full}>
      {exact ? full : shortUsd(usd)}
    </span>
  );
}

/** The exact sum of two amounts of the server. */
export function MoneySum({ usd }: { readonly usd: readonly string[] }) {
  return <Money usd={fromPusd(addUsd(...usd))} />;
}

/** `34k`, with the count of what on hover: `unit` is one of it, `rest` follows it. */
export function Count(props: { readonly n: number; readonly unit: string; readonly rest?: string }) {
  const { n, unit, rest = '' } = props;
  return (
    <span class={figureClass(n === 0)} title={`${formatCount(n, unit)}${rest}`}>
      {formatShortCount(n)}
    </span>
  );
}

function chooseTone(share: number): Tone {
  if (share >= 1) return 'bad';
  if (share >= 0.8) return 'warn';
  return 'ok';
}

/** Where the running turn is expected to end: in half of the earlier turns like it, and in nine of ten. */
export interface BudgetMarks {
  readonly p50: string;
  readonly p90: string;
}

/** How much of a limit is spent. Marks stand where the running turn is expected to end. */
export function BudgetBar(props: {
  readonly spent: string;
  readonly limit: string;
  readonly marks?: BudgetMarks | null | undefined;
}) {
  const { spent, limit, marks = null } = props;
  const share = computeShare(spent, limit);
  const expected =
    marks === null
      ? ''
      : `; the running turn is expected to end at ${exactUsd(marks.p50)} (9 of 10: ${exactUsd(marks.p90)})`;
  return (
    <span class="budget" title={`${exactUsd(spent)} of ${exactUsd(limit)} spent${expected}`}>
      <span class="budget-track">
        <span class={`budget-fill ${chooseTone(share)}`} style={{ width: `${share * 100}%` }} />
        {marks !== null && (
          <>
            <span class="budget-mark" data-mark="p50" style={{ left: `${computeShare(marks.p50, limit) * 100}%` }} />
            <span class="budget-mark" data-mark="p90" style={{ left: `${computeShare(marks.p90, limit) * 100}%` }} />
          </>
        )}
      </span>
      <span class="number quiet">{exactUsd(limit)}</span>
    </span>
  );
}

// Times: relative, with the absolute on hover, and lengths that tick.

/** `at` as the server writes times. */
export function Time({ at }: { readonly at: string }) {
  const now = useNow();
  const ms = Date.parse(at);
  return (
    <time dateTime={at} title={absoluteTime(ms)} class="number">
      {relativeTime(ms, now)}
    </time>
  );
}

/** How long something takes, ticking until it has ended. */
export function Elapsed({ from, to }: { readonly from: string; readonly to: string | null }) {
  const now = useNow(to === null);
  const end = to === null ? now : Date.parse(to);
  return (
    <span class="number" title={`since ${absoluteTime(Date.parse(from))}`}>
      {duration(end - Date.parse(from))}
    </span>
  );
}

// The few signs of the page, drawn as lines in the colour of the text around them.

const PATHS = {
  sessions: 'M2.5 3.5h11v7.5h-6l-3 2.5V11h-2z',
  overview: 'M2.5 2.5h4.5v6H2.5zM9 2.5h4.5v3.5H9zM9 8h4.5v5.5H9zM2.5 10.5H7v3H2.5z',
  cost: 'M3 13.5V9M6.5 13.5V5.5M10 13.5V8M13.5 13.5V2.5',
  approvals: 'M8 1.8 13 4v4c0 3-2.1 5-5 6.2C5.1 13 3 11 3 8V4zM5.8 8l1.6 1.6L10.4 6.4',
  models: 'M8 2 14 5.2 8 8.4 2 5.2zM2 8.2l6 3.2 6-3.2M2 11l6 3.2 6-3.2',
  settings: 'M3 4.5h6M12 4.5h1M3 11.5h1M7 11.5h6M10.5 3v3M5.5 10v3',
  help: 'M8 2a6 6 0 1 1 0 12A6 6 0 0 1 8 2zM6.3 6.2a1.8 1.8 0 1 1 2.6 1.6c-.6.3-.9.7-.9 1.4M8 11.3v.1',
  branch:
    'M4.5 5.5v5M4.5 2.5a1.5 1.5 0 1 1 0 3 1.5 1.5 0 0 1 0-3zM4.5 10.5a1.5 1.5 0 1 1 0 3 1.5 1.5 0 0 1 0-3zM11.5 3.5a1.5 1.5 0 1 1 0 3 1.5 1.5 0 0 1 0-3zM11.5 6.5c0 2.5-4 2-6.6 4',
  plus: 'M8 3v10M3 8h10',
  close: 'M4 4l8 8M12 4l-8 8',
  chevron: 'M6 3.5 10.5 8 6 12.5',
  down: 'M3.5 6 8 10.5 12.5 6',
  signOut: 'M6.5 2.5h-4v11h4M10 5l3 3-3 3M13 8H6',
  people:
    'M6 2.5a2.3 2.3 0 1 1 0 4.6 2.3 2.3 0 0 1 0-4.6zM1.8 13.5c0-2.6 1.8-4.2 4.2-4.2s4.2 1.6 4.2 4.2M10.5 2.9a2.2 2.2 0 0 1 0 4M12 9.6c1.4.6 2.2 2 2.2 3.9',
  back: 'M10 3.5 5.5 8l4.5 4.5',
  stop: 'M4.5 4.5h7v7h-7z',
  send: 'M8 13V3M3.5 7.5 8 3l4.5 4.5',
  check: 'M3 8.5 6.5 12 13 4.5',
  worker: 'M4 3v5.5a2 2 0 0 0 2 2h6M9.5 8 12 10.5 9.5 13',
  tool: 'M10.5 2.5a3 3 0 0 0-2.6 4.4L2.5 12.3l1.2 1.2 5.4-5.4a3 3 0 0 0 4.2-3.6L11.5 6.3 9.7 4.5z',
  alert: 'M8 2.2 14.2 13H1.8zM8 6.5v3M8 11.3v.2',
  search: 'M7 2.8a4.2 4.2 0 1 1 0 8.4 4.2 4.2 0 0 1 0-8.4zM10.2 10.2l3.3 3.3',
  download: 'M8 2.5v7.5M4.5 7 8 10.5 11.5 7M3 13.5h10',
  clock: 'M8 2a6 6 0 1 1 0 12A6 6 0 0 1 8 2zM8 5v3.2l2.2 1.4',
  route:
    'M3.5 5a1.5 1.5 0 1 0 0-3 1.5 1.5 0 0 0 0 3zM3.5 5v6a2 2 0 0 0 2 2h5M12.5 11.5a1.5 1.5 0 1 1 0 3 1.5 1.5 0 0 1 0-3z',
  thumb: 'M5.5 7 8 2.2c1.2 0 1.8.8 1.6 1.8L9.2 6H13l-.8 6.2a1 1 0 0 1-1 .8H5.5zM2.5 7h3v6h-3z',
  thumbDown: 'M5.5 9 8 13.8c1.2 0 1.8-.8 1.6-1.8L9.2 10H13l-.8-6.2a1 1 0 0 0-1-.8H5.5zM2.5 9h3V3h-3z',
  copy: 'M5.5 5.5h8v8h-8zM10.5 5.5v-3h-8v8h3',
  system: 'M2 3h12v8H2zM6 14h4M8 11v3',
  light:
    'M8 5.2a2.8 2.8 0 1 1 0 5.6 2.8 2.8 0 0 1 0-5.6zM8 1.5v1.3M8 13.2v1.3M1.5 8h1.3M13.2 8h1.3M3.4 3.4l.9.9M11.7 11.7l.9.9M12.6 3.4l-.9.9M4.3 11.7l-.9.9',
  dark: 'M13.3 9.6A5.6 5.6 0 0 1 6.4 2.7a5.6 5.6 0 1 0 6.9 6.9z',
  menu: 'M2.5 4.5h11M2.5 8h11M2.5 11.5h11',
  more: 'M3.5 8h.1M8 8h.1M12.5 8h.1',
} as const;

export type IconName = keyof typeof PATHS;

/** Hidden from a screen reader: the control around it has a name of its own. */
export function Icon({ name }: { readonly name: IconName }) {
  return (
    <svg class="icon" viewBox="0 0 16 16" aria-hidden="true" focusable="false">
      <path d={PATHS[name]} />
    </svg>
  );
}
