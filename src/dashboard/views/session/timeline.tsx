// A turn's timeline: model calls, tools and delegations as bars over time, planner and workers under each other.
import type { ComponentChildren } from 'preact';
import { useMemo, useState } from 'preact/hooks';
import type { MetisClient, Session, Turn } from '#client/client.ts';
import { useApi } from '#dashboard/data/api.ts';
import { useNow, usePolled } from '#dashboard/data/queries.ts';
import { duration, formatNumber } from '#dashboard/format/format.ts';
import { Menu } from '#dashboard/parts/fields.tsx';
import { Empty, Failure, Skeleton } from '#dashboard/parts/panels.tsx';
import { ulidFloor } from '#protocol/ids.ts';
import { buildLanes, type Lane } from './live/lanes.ts';
import { type Bar, buildSpans, type TimelineEvent } from './live/spans.ts';
import { WorkerLanes } from './worker-lanes.tsx';

const PAGE = 1000;
/** A turn of more events than this is shown from its beginning. */
const MOST_EVENTS = 5000;
const MINUTE_MS = 60_000;
/** How far back from its last call a session without turns is shown. */
const SPANS = [
  { value: '10', label: 'last 10 minutes' },
  { value: '60', label: 'last hour' },
  { value: '1440', label: 'last day' },
] as const;
const RUNNING_MS = 2000;
/** Events of an ended turn stay as they are. */
const ENDED_MS = 600_000;
/** Bars that are drawn at first, and more each time they are asked for. */
const DRAWN = 300;
/** A call of a client lasts seconds, and nothing of it is streamed here. */
const CALLS_EVERY_MS = 4000;

export function Timeline(props: {
  readonly session: Session;
  readonly turns: ReadonlyMap<string, Turn>;
  readonly version: number;
  /** What the session and its workers are called beside their bars, by id. */
  readonly labels: ReadonlyMap<string, string>;
}) {
  // The calls of a gateway's client belong to no turn.
  if (props.session.door === 'gateway') return <CallTimeline session={props.session} labels={props.labels} />;
  return <TurnTimeline {...props} />;
}

function TurnTimeline(props: Parameters<typeof Timeline>[0]) {
  const { client } = useApi();
  const { id: sessionId } = props.session;
  const turns = [...props.turns.values()];
  const [chosen, setChosen] = useState('');
  const turn = turns.find(({ id }) => id === chosen) ?? turns[0];
  const running = turn !== undefined && turn.ended_at === null;
  const { data, error, reload } = usePolled(
    (signal) => fetchTurnEvents(client, sessionId, turn, signal),
    `${sessionId} ${turn?.id ?? ''} ${turn?.ended_at ?? ''} ${running ? props.version : ''}`,
    running ? RUNNING_MS : ENDED_MS,
  );
  const now = useNow(running);
  const bars = useMemo(() => buildSpans(data ?? [], props.labels), [data, props.labels]);
  const lanes = useMemo(() => buildLanes(data ?? [], bars), [data, bars]);
  if (turn === undefined) {
    return (
      <Empty icon="clock" title="No turns yet">
        <p>The timeline shows each model call, tool call and approval of a turn, from the first message on.</p>
      </Empty>
    );
  }
  const until = turn.ended_at === null ? now : Date.parse(turn.ended_at);
  return (
    <Bars
      bars={bars}
      lanes={lanes}
      from={Date.parse(turn.started_at)}
      until={until}
      loading={data === null}
      {...{ error, reload }}
    >
      <Menu
        label="Turn"
        value={turn.id}
        onChoose={setChosen}
        choices={turns.map(({ id, started_at }, i) => ({
          value: id,
          label: i === 0 ? 'newest' : `${turns.length - i}`,
          hint: new Date(started_at).toLocaleTimeString(),
        }))}
      />
    </Bars>
  );
}

/** The calls that passed through the gateway, up to the last one. */
function CallTimeline({ session, labels }: Pick<Parameters<typeof Timeline>[0], 'session' | 'labels'>) {
  const { client } = useApi();
  const [span, setSpan] = useState<string>(SPANS[1].value);
  const since = ulidFloor(Date.parse(session.updated_at) - Number(span) * MINUTE_MS);
  const { data, error, reload } = usePolled(
    (signal) => fetchEvents(client, session.id, { since }, signal),
    `${session.id} ${span} ${session.updated_at}`,
    CALLS_EVERY_MS,
  );
  const [last, setLast] = useState<readonly TimelineEvent[] | null>(null);
  if (data !== null && data !== last) setLast(data);
  const events = data ?? last;
  const bars = useMemo(() => buildSpans(events ?? [], labels), [events, labels]);
  const now = useNow(bars.some(({ end }) => end === null));
  const from = bars.reduce((first, { start }) => Math.min(first, start), now);
  const until = bars.reduce((latest, { start, end }) => Math.max(latest, end ?? now, start), from);
  return (
    <Bars bars={bars} lanes={[]} from={from} until={until} loading={events === null} {...{ error, reload }}>
      <Menu label="Show" value={span} onChoose={setSpan} choices={SPANS} />
    </Bars>
  );
}

function Bars(props: {
  readonly bars: readonly Bar[];
  readonly lanes: readonly Lane[];
  readonly from: number;
  readonly until: number;
  readonly loading: boolean;
  readonly error: unknown;
  readonly reload: () => void;
  readonly children: ComponentChildren;
}) {
  const { bars, lanes, from, until, loading, error, reload } = props;
  const [drawn, setDrawn] = useState(DRAWN);
  const last = bars.reduce((latest, { end, start }) => Math.max(latest, end ?? start), until);
  const length = Math.max(1, last - from);
  return (
    <section class="timeline" aria-label="Timeline" tabIndex={0}>
      <div class="timeline-head">
        {props.children}
        <span class="quiet number">{duration(length)}</span>
      </div>
      {error !== null && <Failure error={error} retry={reload} />}
      {loading && error === null && <Skeleton rows={8} height={28} />}
      {!loading && bars.length === 0 && <p class="quiet">No call in this time. A call appears here when it begins.</p>}
      <WorkerLanes lanes={lanes} from={from} length={length} until={last} />
      <ol class="bars">
        {bars.slice(0, drawn).map((bar) => (
          <BarRow key={bar.id} bar={bar} from={from} length={length} until={last} />
        ))}
      </ol>
      {bars.length > drawn && (
        <p class="more">
          <span class="quiet">{formatNumber(bars.length - drawn)} more bars are not shown.</span>{' '}
          <button type="button" class="button ghost" onClick={() => setDrawn(drawn + DRAWN)}>
            Show more
          </button>
        </p>
      )}
    </section>
  );
}

function BarRow(props: { readonly bar: Bar; readonly from: number; readonly length: number; readonly until: number }) {
  const { bar, from, length } = props;
  const end = bar.end ?? props.until;
  const left = Math.max(0, (bar.start - from) / length) * 100;
  const width = Math.max(0.3, ((end - bar.start) / length) * 100);
  return (
    <li class={`bar-row ${bar.kind}${bar.failed ? ' failed' : ''}`}>
      <span class="bar-label" title={bar.label}>
        <span class="quiet">{bar.session}</span> {bar.label}
      </span>
      <span class="bar-track" aria-hidden="true">
        <span class="bar" style={{ left: `${Math.min(left, 99.7)}%`, width: `${Math.min(width, 100 - left)}%` }} />
      </span>
      <span class="bar-length number">{bar.end === null ? 'running' : duration(end - bar.start)}</span>
    </li>
  );
}

async function fetchTurnEvents(
  client: MetisClient,
  sessionId: string,
  turn: Turn | undefined,
  signal: AbortSignal,
): Promise<readonly TimelineEvent[]> {
  if (turn === undefined) return [];
  // Ids order by time: the turn's events are those behind its own id, up to its end.
  const isLast = (event: TimelineEvent) =>
    event.turn_id === turn.id && /^turn\.(completed|failed|cancelled)$/.test(event.type);
  return fetchEvents(client, sessionId, { since: turn.id, isLast }, signal);
}

interface Wanted {
  /** Events after this id. */
  readonly since: string;
  readonly isLast?: (event: TimelineEvent) => boolean;
}

/** Those of the session and its workers. */
async function fetchEvents(
  client: MetisClient,
  sessionId: string,
  { since, isLast = () => false }: Wanted,
  signal: AbortSignal,
): Promise<readonly TimelineEvent[]> {
  const found: TimelineEvent[] = [];
  let cursor: string | null = null;
  const query = { since, include_worker_sessions: true, limit: PAGE } as const;
  do {
    const page: Awaited<ReturnType<MetisClient['listEvents']>> = await client.listEvents(
      sessionId,
      { ...query, ...(cursor !== null && { cursor }) },
      { signal },
    );
    for (const event of page.events) {
      found.push(event);
      if (isLast(event)) return found;
    }
    cursor = page.next_cursor;
  } while (cursor !== null && found.length < MOST_EVENTS);
  return found;
}
