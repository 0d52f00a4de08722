// The sessions, newest first: what each does, what it cost with its workers, and filters over them (17 §3).
import { useEffect, useMemo, useRef, useState } from 'preact/hooks';
import type { MetisClient, Session } from '#client/client.ts';
import { May, useApi, useOwnToken } from '#dashboard/data/api.ts';
import { useNarrow } from '#dashboard/data/page-memory.ts';
import { getTitle, usePolled, useSettled } from '#dashboard/data/queries.ts';
import { baseName, describeState, emptyToNull, formatAtLeast } from '#dashboard/format/format.ts';
import { Menu } from '#dashboard/parts/fields.tsx';
import { useMoveByKey } from '#dashboard/parts/keys.ts';
import {
  Badge,
  BudgetBar,
  figureClass,
  Icon,
  isSessionSimulated,
  ModelName,
  Money,
  MoneySum,
  NoValue,
  Simulated,
  SOURCE_NAMES,
  SourceBadge,
  State,
  Time,
} from '#dashboard/parts/labels.tsx';
import { Empty, Failure, Skeleton } from '#dashboard/parts/panels.tsx';
import { type Column, LongTable } from '#dashboard/parts/table.tsx';
import {
  formatPlace,
  formatPlaceWithQuery,
  goTo,
  type Place,
  readPlace,
  replacePlace,
} from '#dashboard/shell/place.ts';
import { SessionView } from '../session/session-view.tsx';
import { OwnerFacts } from '../session/sharing.tsx';
import { NewSession } from './new-session.tsx';
import type { ListQuery } from './session-list.ts';
import { useSessions } from './use-sessions.ts';

// The columns of a session's row.

const SESSION_COLUMNS: readonly Column<Session>[] = [
  {
    id: 'title',
    title: 'Session',
    cell: (session) => (
      <>
        <a class="row-link" href={formatPlace('sessions', session.id)} title={getTitle(session)}>
          {getTitle(session)}
        </a>
        <span class="sub" title={session.workspace_path}>
          {session.is_worker && <Badge tone="worker">{session.worker_name ?? 'worker'}</Badge>}
          {isSessionSimulated(session) && <Simulated />}
          <SourceBadge session={session} />
          <OwnerFacts session={session} />
          {baseName(session.workspace_path)}
        </span>
      </>
    ),
  },
  { id: 'state', title: 'State', cell: (session) => <State state={describeState(session)} /> },
  {
    id: 'model',
    title: 'Model',
    cell: (session) => <ModelName id={session.active_model ?? session.last_model} />,
  },
  {
    id: 'workers',
    title: 'Workers',
    numeric: true,
    cell: ({ worker_count, active_worker_count }) => (
      <span class={figureClass(worker_count === 0)} title={`${active_worker_count} of ${worker_count} running`}>
        {active_worker_count > 0 && `${active_worker_count} / `}
        {worker_count}
      </span>
    ),
  },
  { id: 'own', title: 'Planner', numeric: true, cell: (session) => <Money usd={session.cost_so_far_usd} /> },
  {
    id: 'worker-cost',
    title: 'By workers',
    numeric: true,
    cell: (session) => <Money usd={session.workers_cost_usd} />,
  },
  {
    id: 'total',
    title: 'Total',
    numeric: true,
    cell: (session) => <MoneySum usd={[session.cost_so_far_usd, session.workers_cost_usd]} />,
  },
  {
    id: 'budget',
    title: 'Budget',
    cell: ({ budget }) => {
      if (budget?.max_cost_usd == null) return <NoValue />;
      return <BudgetBar spent={budget.spent_usd} limit={budget.max_cost_usd} />;
    },
  },
  { id: 'activity', title: 'Last activity', numeric: true, cell: (session) => <Time at={session.updated_at} /> },
];

// Filters of the list of sessions, kept in the address: by door, and by named worker.

/** Names are few, and new ones seldom. */
const NAMES_MS = 60_000;
const OFFERED = 200;
const ANY = { value: '', label: 'Any' };
const OTHER_DOORS = ['gateway', 'mcp', 'acp'] as const satisfies readonly Session['door'][];

/** What the address asks for; null: whatever it is. */
interface Sought {
  readonly worker: string | null;
  readonly door: Session['door'] | null;
  readonly state: ListQuery['state'];
  readonly owner: string | null;
  readonly q: string | null;
  /** Workers' sessions are listed too. */
  readonly workers: boolean;
}

// The server refuses other values.
const WORKER_NAME = /^(?!__proto__$)[A-Za-z0-9_-]{1,64}$/;
const MOST_OF_OWNER = 100;
const MOST_SEARCHED = 200;

/** Reads the filters from the address. Blank and invalid values are ignored; a longer search is cut. */
function parseSought({ query }: Place): Sought {
  const door = query.get('door');
  const state = query.get('state');
  const worker = readSought(query, 'worker');
  const owner = readSought(query, 'owner');
  return {
    worker: worker !== null && WORKER_NAME.test(worker) ? worker : null,
    door: door !== null && Object.hasOwn(SOURCE_NAMES, door) ? (door as Session['door']) : null,
    state: (STATES.find(({ value }) => value !== '' && value === state)?.value as ListQuery['state']) ?? null,
    owner: owner !== null && owner.length <= MOST_OF_OWNER ? owner : null,
    q: cutSearch(readSought(query, 'q')),
    workers: query.has('workers'),
  };
}

/** Without blanks around it; null: absent or blank. */
function readSought(query: URLSearchParams, name: string): string | null {
  return emptyToNull((query.get(name) ?? '').trim());
}

/** A half character at the cut is left out. A text with NUL is found nowhere. */
function cutSearch(text: string | null): string | null {
  if (text === null || text.includes('\0')) return null;
  const head = text.slice(0, MOST_SEARCHED).replace(/\p{Surrogate}$/u, '');
  return head.trim();
}

/** The address with `changed` filters. The others are read from it, since one of them may have changed after the drawing. */
function formatSoughtWith(changed: Partial<Sought>): string {
  const { workers, ...sought } = { ...parseSought(readPlace()), ...changed };
  return formatPlaceWithQuery('sessions', { ...sought, workers: workers ? '1' : null });
}

/** Which door: those that sessions came by. Where all are the API's own nothing is offered. */
function SourceFilter({ sought }: { readonly sought: Sought }) {
  const { door } = sought;
  const { client } = useApi();
  const { data } = usePolled((signal) => otherDoors(client, signal), 'doors', NAMES_MS);
  const used = new Set<Session['door']>(data ?? []);
  if (used.size > 0 || door !== null) used.add('api');
  if (door !== null) used.add(door);
  if (used.size === 0) return null;
  const names = (Object.keys(SOURCE_NAMES) as Session['door'][]).filter((name) => used.has(name));
  return (
    <Menu
      label="Source"
      choices={[ANY, ...names.map((value) => ({ value, label: SOURCE_NAMES[value] }))]}
      value={door ?? ''}
      onChoose={(name) => goTo(formatSoughtWith({ door: emptyToNull(name) as Sought['door'] }))}
    />
  );
}

async function otherDoors(client: MetisClient, signal: AbortSignal): Promise<readonly Session['door'][]> {
  const pages = await Promise.all(OTHER_DOORS.map((door) => client.listSessions({ door, limit: 1 }, { signal })));
  return OTHER_DOORS.filter((_, at) => pages[at]?.sessions.length === 1);
}

/** Which named worker: those that have spent something are offered, and the one of the address. */
function WorkerFilter({ sought }: { readonly sought: Sought }) {
  const { worker } = sought;
  const { client } = useApi();
  const { data } = usePolled(
    async (signal) => {
      const report = await client.getCost({ group_by: 'worker_name', from: 'all', limit: OFFERED }, { signal });
      return report.data.flatMap(({ worker_name }) => worker_name ?? []).sort();
    },
    'worker names',
    NAMES_MS,
  );
  const names = new Set(data ?? []);
  if (worker !== null) names.add(worker);
  if (names.size === 0) return null;
  return (
    <Menu
      label="Worker"
      choices={[ANY, ...[...names].map((value) => ({ value, label: value }))]}
      value={worker ?? ''}
      onChoose={(name) => goTo(formatSoughtWith({ worker: emptyToNull(name) }))}
    />
  );
}

/** The person's own sessions; those of another where the address names one. Nothing where the person has no name. */
function OwnerFilter({ sought }: { readonly sought: Sought }) {
  const { owner } = sought;
  const { token } = useOwnToken();
  if (token === null && owner === null) return null;
  const choices = [ANY, ...(token === null ? [] : [{ value: 'me', label: 'Mine', hint: token.name }])];
  if (owner !== null && owner !== 'me') choices.push({ value: owner, label: owner });
  return (
    <Menu
      label="Owner"
      choices={choices}
      value={owner ?? ''}
      onChoose={(name) => goTo(formatSoughtWith({ owner: emptyToNull(name) }))}
    />
  );
}

const ROW_HEIGHTS = { wide: 48, narrow: 76 };
const STATES = [
  { value: '', label: 'All' },
  { value: 'running', label: 'Running' },
  { value: 'interrupted', label: 'Interrupted' },
  { value: 'failed', label: 'Failed' },
  { value: 'idle', label: 'Idle' },
  { value: 'ended', label: 'Ended' },
];

/** One of them where the address names one, else all. */
export function SessionsView({ place }: { readonly place: Place }) {
  const [id] = place.rest;
  if (id !== undefined) return <SessionView key={id} sessionId={id} place={place} />;
  return <AllSessions sought={parseSought(place)} />;
}

function AllSessions({ sought }: { readonly sought: Sought }) {
  const { worker, door, state, owner, workers } = sought;
  const [text, setText] = useSearchText(sought);
  const [opening, setOpening] = useState(false);
  const query = { state, include_workers: workers || worker !== null, worker_name: worker, door, owner, q: sought.q };
  const { list, error, reload, more } = useSessions(query);
  const narrow = useNarrow();
  const rowHeight = ROW_HEIGHTS[narrow ? 'narrow' : 'wide'];
  const shown = useMemo(() => list?.sessions.filter((session) => matches(session, state)) ?? null, [list, state]);
  // None of these counts, as where all of them failed: there are older ones.
  const isLoading = shown === null || (shown.length === 0 && list?.next != null);
  useEffect(() => {
    if (isLoading) more();
  }, [isLoading, more, list]);
  const box = useMoveByKey('.row-link', String(shown?.length));
  return (
    <div class="view sessions-view" ref={box}>
      <header class="view-head">
        <h1>Sessions</h1>
        <span class="quiet number" role="status">
          {shown && formatAtLeast(shown.length, list?.next != null)}
        </span>
        <div class="tools">
          <label class="search">
            <Icon name="search" />
            <input
              type="search"
              placeholder={narrow ? 'Search all' : 'Search all sessions'}
              aria-label="Search by title, id, workspace, worker or client"
              maxLength={MOST_SEARCHED}
              value={text}
              onInput={(event) => setText(event.currentTarget.value)}
            />
          </label>
          <Menu
            label="State"
            choices={STATES}
            value={state ?? ''}
            onChoose={(value) => goTo(formatSoughtWith({ state: emptyToNull(value) as Sought['state'] }))}
          />
          <SourceFilter sought={sought} />
          <WorkerFilter sought={sought} />
          <OwnerFilter sought={sought} />
          {worker === null && (
            <label class="check">
              <input type="checkbox" checked={workers} onChange={() => goTo(formatSoughtWith({ workers: !workers }))} />
              Workers
            </label>
          )}
          <May operation="createSession">
            <button type="button" class="button primary" onClick={() => setOpening(true)}>
              <Icon name="plus" />
              New session
            </button>
          </May>
        </div>
      </header>
      {opening && (
        <NewSession
          workspaces={[...new Set(list?.sessions.map(({ workspace_path }) => workspace_path))].slice(0, 20)}
          onClose={() => setOpening(false)}
        />
      )}
      {error !== null && <Failure error={error} title="The sessions could not be loaded" retry={reload} />}
      {isLoading && error === null && <Skeleton rows={12} height={rowHeight} />}
      {shown?.length === 0 && !isLoading && (
        <NoSessions
          filtered={state !== null || sought.q !== null || worker !== null || door !== null || owner !== null}
          skipsWorkers={sought.q !== null && !query.include_workers}
        />
      )}
      {shown !== null && shown.length > 0 && (
        <LongTable
          label="Sessions"
          grid="sessions-grid"
          columns={SESSION_COLUMNS}
          rows={shown}
          rowKey={(session) => session.id}
          rowHeight={rowHeight}
          onNearEnd={more}
        />
      )}
    </div>
  );
}

/** What is being typed; the address follows once it has settled, and is followed where it changes by itself. */
function useSearchText(sought: Sought): readonly [string, (text: string) => void] {
  const [text, setText] = useState(sought.q ?? '');
  const written = useRef(sought.q);
  const settled = emptyToNull(useSettled(text).trim());
  useEffect(() => {
    if (settled === written.current) return;
    written.current = settled;
    replacePlace(formatSoughtWith({ q: settled }));
  }, [settled]);
  useEffect(() => {
    if (sought.q === written.current) return;
    written.current = sought.q;
    setText(sought.q ?? '');
  }, [sought.q]);
  return [text, setText];
}

/** As its row shows it. A session that was listed may have changed its state since. */
function matches(session: Session, state: ListQuery['state']): boolean {
  if (state === 'failed') return session.failure !== null;
  if (state === 'idle' && session.failure !== null) return false;
  return state === null || session.status === state;
}

function NoSessions({ filtered, skipsWorkers }: { readonly filtered: boolean; readonly skipsWorkers: boolean }) {
  if (filtered)
    return (
      <Empty icon="search" title="No session matches">
        Change the filters to see more sessions{skipsWorkers && ', or tick “Workers” to search theirs too'}.
      </Empty>
    );
  return (
    <Empty icon="sessions" title="No sessions yet">
      <p>
        A session is a conversation with a planner in a workspace. Open one with “New session”, or from a terminal with{' '}
        <code>metis run "what could be simplified here?"</code>
      </p>
    </Empty>
  );
}
