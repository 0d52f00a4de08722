// The sessions, newest first: what each does, what it cost with its workers, and filters over them (17 §3).
import { useCallback, useEffect, useMemo, useRef, useState } from 'preact/hooks';
import type { MetisClient, Session } from '#client/client.ts';
import { useApi } from '#dashboard/data/api.ts';
import { useNarrow } from '#dashboard/data/page-memory.ts';
import { getTitle, usePolled } from '#dashboard/data/queries.ts';
import { baseName, formatNumber, modelName } from '#dashboard/format/format.ts';
import { Menu } from '#dashboard/parts/fields.tsx';
import {
  Badge,
  BudgetBar,
  Icon,
  Money,
  MoneySum,
  SOURCE_NAMES,
  SourceBadge,
  State,
  Time,
} from '#dashboard/parts/labels.tsx';
import { Empty, Failure, Skeleton } from '#dashboard/parts/panels.tsx';
import { type Column, LongTable } from '#dashboard/parts/table.tsx';
import { formatPlace, formatPlaceWithQuery, goTo, type Place } from '#dashboard/shell/place.ts';
import { SessionView } from '../session/session-view.tsx';
import { NewSession } from './new-session.tsx';
import { createSessionLoader, type ListQuery, type SessionList } from './session-list.ts';

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
          <SourceBadge session={session} />
          {baseName(session.workspace_path)}
        </span>
      </>
    ),
  },
  { id: 'state', title: 'State', cell: (session) => <State state={getState(session)} /> },
  {
    id: 'model',
    title: 'Model',
    cell: (session) => {
      const model = session.active_model ?? session.last_model;
      return model === null ? <span class="quiet">–</span> : <span title={model}>{modelName(model)}</span>;
    },
  },
  {
    id: 'workers',
    title: 'Workers',
    numeric: true,
    cell: ({ worker_count, active_worker_count }) => (
      <span
        class={worker_count === 0 ? 'number quiet' : 'number'}
        title={`${active_worker_count} of ${worker_count} running`}
      >
        {active_worker_count > 0 ? `${active_worker_count} / ${worker_count}` : worker_count}
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
    cell: ({ budget }) =>
      budget?.max_cost_usd == null ? (
        <span class="quiet">–</span>
      ) : (
        <BudgetBar spent={budget.spent_usd} limit={budget.max_cost_usd} />
      ),
  },
  { id: 'activity', title: 'Last activity', numeric: true, cell: (session) => <Time at={session.updated_at} /> },
];

/** How it ended, where it has. */
function getState({ status, disposition }: Session): string {
  return status === 'ended' && disposition !== null && disposition !== 'completed' ? disposition : status;
}

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
}

/** The door of the address; what is none is as if it were not there. */
function parseDoor({ query }: Place): Session['door'] | null {
  const text = query.get('door');
  return text !== null && Object.hasOwn(SOURCE_NAMES, text) ? (text as Session['door']) : null;
}

/** Which door: those that sessions came by. Where all are the API's own nothing is offered. */
function SourceFilter({ worker, door }: Sought) {
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
      onChoose={(name) => goTo(formatPlaceWithQuery('sessions', { worker, door: name === '' ? null : name }))}
    />
  );
}

async function otherDoors(client: MetisClient, signal: AbortSignal): Promise<readonly Session['door'][]> {
  const pages = await Promise.all(OTHER_DOORS.map((door) => client.listSessions({ door, limit: 1 }, { signal })));
  return OTHER_DOORS.filter((_, at) => pages[at]?.sessions.length === 1);
}

/** Which named worker: those that have spent something are offered, and the one of the address. */
function WorkerFilter({ worker, door }: Sought) {
  const { client } = useApi();
  const { data } = usePolled(
    async (signal) => {
      const report = await client.getCost({ group_by: 'worker_name', from: 'all', limit: OFFERED }, { signal });
      return report.data.flatMap(({ worker_name }) => worker_name ?? []).sort();
    },
    'worker names',
    NAMES_MS,
  );
  const names = [...new Set([...(data ?? []), ...(worker === null ? [] : [worker])])];
  if (names.length === 0) return null;
  return (
    <Menu
      label="Worker"
      choices={[ANY, ...names.map((value) => ({ value, label: value }))]}
      value={worker ?? ''}
      onChoose={(name) => goTo(formatPlaceWithQuery('sessions', { worker: name === '' ? null : name, door }))}
    />
  );
}

const ROW = 48;
const NARROW_ROW = 76;
const STATES = [
  { value: '', label: 'All' },
  { value: 'running', label: 'Running' },
  { value: 'interrupted', label: 'Interrupted' },
  { value: 'idle', label: 'Idle' },
  { value: 'ended', label: 'Ended' },
];

/** One of them where the address names one, else all. */
export function SessionsView({ place }: { readonly place: Place }) {
  const [id] = place.rest;
  return id === undefined ? (
    <AllSessions worker={place.query.get('worker')} door={parseDoor(place)} />
  ) : (
    <SessionView key={id} sessionId={id} place={place} />
  );
}

function AllSessions({ worker, door }: Sought) {
  const [status, setStatus] = useState('');
  const [workers, setWorkers] = useState(false);
  const [text, setText] = useState('');
  const [opening, setOpening] = useState(false);
  const query = {
    status: status === '' ? null : (status as Session['status']),
    include_workers: workers || worker !== null,
    worker_name: worker,
    door,
  };
  const { list, error, reload, more } = useSessions(query);
  const narrow = useNarrow();
  const shown = useMemo(
    () => list?.sessions.filter((session) => matches(session, status, text)) ?? null,
    [list, status, text],
  );
  return (
    <div class="view sessions-view">
      <header class="view-head">
        <h1>Sessions</h1>
        <span class="quiet number" role="status">
          {shown && `${formatNumber(shown.length)}${list?.next == null ? '' : '+'}`}
        </span>
        <div class="tools">
          <label class="search">
            <Icon name="search" />
            <input
              type="search"
              placeholder="Filter by title"
              aria-label="Filter by title, workspace or id"
              value={text}
              onInput={(event) => setText(event.currentTarget.value)}
            />
          </label>
          <Menu label="State" choices={STATES} value={status} onChoose={setStatus} />
          <SourceFilter worker={worker} door={door} />
          <WorkerFilter worker={worker} door={door} />
          {worker === null && (
            <label class="check">
              <input type="checkbox" checked={workers} onChange={(event) => setWorkers(event.currentTarget.checked)} />
              Workers
            </label>
          )}
          <button type="button" class="button primary" onClick={() => setOpening(true)}>
            <Icon name="plus" />
            New session
          </button>
        </div>
      </header>
      {opening && (
        <NewSession
          workspaces={[...new Set(list?.sessions.map(({ workspace_path }) => workspace_path))].slice(0, 20)}
          onClose={() => setOpening(false)}
        />
      )}
      {error !== null && <Failure error={error} title="The sessions could not be loaded" retry={reload} />}
      {shown === null ? (
        error === null && <Skeleton rows={12} height={narrow ? NARROW_ROW : ROW} />
      ) : shown.length === 0 ? (
        <NoSessions filtered={status !== '' || text !== '' || worker !== null || door !== null} />
      ) : (
        <LongTable
          label="Sessions"
          grid="sessions-grid"
          columns={SESSION_COLUMNS}
          rows={shown}
          rowKey={(session) => session.id}
          rowHeight={narrow ? NARROW_ROW : ROW}
          onNearEnd={more}
        />
      )}
    </div>
  );
}

function useSessions(query: ListQuery) {
  const { client, reportFailure } = useApi();
  const key = `${query.status} ${query.include_workers} ${query.worker_name} ${query.door}`;
  const loader = useMemo(() => createSessionLoader(client, query), [client, key]);
  const { data, error, reload } = usePolled(loader.refresh, key);
  const [grown, setGrown] = useState<SessionList | null>(null);
  // What was asked for by scrolling counts until the next answer of the polling, which contains it.
  useEffect(() => setGrown(null), [data]);
  const list = grown ?? data;
  const loading = useRef(false);
  const next = list?.next ?? null;
  const more = useCallback(() => {
    if (loading.current || next === null) return;
    loading.current = true;
    loader
      .older(new AbortController().signal)
      .then(setGrown, reportFailure)
      .finally(() => {
        loading.current = false;
      });
  }, [loader, reportFailure, next]);
  return { list, error, reload, more };
}

function matches(session: Session, status: string, text: string): boolean {
  if (status !== '' && session.status !== status) return false;
  if (text === '') return true;
  const sought = text.toLowerCase();
  return [session.title ?? '', session.workspace_path, session.id].some((field) =>
    field.toLowerCase().includes(sought),
  );
}

function NoSessions({ filtered }: { readonly filtered: boolean }) {
  if (filtered)
    return (
      <Empty icon="search" title="No session matches">
        Change the filters to see more sessions.
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
