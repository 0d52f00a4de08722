// The sessions, newest first: what each does, what it cost with its workers, and filters over them (17 §3).
import { useCallback, useEffect, useMemo, useRef, useState } from 'preact/hooks';
import type { Session } from '#client/client.ts';
import { useApi } from '#dashboard/data/api.ts';
import { useNarrow } from '#dashboard/data/media.ts';
import { usePolled } from '#dashboard/data/polled.ts';
import { count } from '#dashboard/format/number.ts';
import { Icon } from '#dashboard/parts/icon.tsx';
import { Menu } from '#dashboard/parts/menu.tsx';
import { Empty, Failure, Skeleton } from '#dashboard/parts/notice.tsx';
import { LongTable } from '#dashboard/parts/table.tsx';
import type { Place } from '#dashboard/shell/place.ts';
import { SessionView } from '../session/session-view.tsx';
import { SESSION_COLUMNS } from './columns.tsx';
import { NewSession } from './new-session.tsx';
import { DoorFilter, doorOf, type Sought, WorkerFilter } from './session-filters.tsx';
import { createSessionLoader, type ListQuery, type SessionList } from './session-list.ts';

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
    <AllSessions worker={place.query.get('worker')} door={doorOf(place)} />
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
          {shown && `${count(shown.length)}${list?.next == null ? '' : '+'}`}
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
          <DoorFilter worker={worker} door={door} />
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
      {error !== null && <Failure error={error} title="The list cannot be read" retry={reload} />}
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
  const { client, failed } = useApi();
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
      .then(setGrown, failed)
      .finally(() => {
        loading.current = false;
      });
  }, [loader, failed, next]);
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
        Loosen the filter to see more of them.
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
