// All sessions loaded so far, newest first: pages fetched as one scrolls, and what changes kept current.
import type { MetisClient, Session } from '#client/client.ts';

/** Asked for again and again, so no more than a window shows. */
const PAGE = 100;
/** Asked for once, as one scrolls. */
const OLDER_PAGE = 200;
/** How many sessions that ceased to be active are looked up again in one round. */
const SETTLED_AT_ONCE = 20;
/** Pages walked to close the gap to what is known, after the page was hidden for long. */
const GAP_PAGES = 10;
const NO_SESSIONS = { sessions: [] } as const;
const ACTIVE = ['running', 'interrupted'] as const;

/** What is listed: `state` null = every state. */
export interface ListQuery {
  readonly include_workers: boolean;
  readonly state: Session['status'] | 'failed' | null;
  /** Of one named worker, those that others called included; null: of all. */
  readonly worker_name: string | null;
  /** That came in by this door; null: by any. */
  readonly door: Session['door'] | null;
  /** Sessions of this token: a name, or `me`; null: of all. */
  readonly owner: string | null;
  /** What it is searched for; null: everything. */
  readonly q: string | null;
}
interface Question<K> {
  readonly client: MetisClient;
  readonly query: ListQuery;
  readonly known: K;
}

export interface SessionList {
  readonly sessions: readonly Session[];
  /** Where the next page of older ones begins; null when all are here. */
  readonly next: string | null;
}

/** The newest page, again and again; what is older stays, and what was active is followed. */
async function refresh(
  { client, query: wanted, known }: Question<SessionList | null>,
  signal: AbortSignal,
): Promise<SessionList> {
  const query = buildListQuery(wanted);
  const [first, active] = await Promise.all([
    client.listSessions(query, { signal }),
    // A search reads the first message of every session: once is enough.
    wanted.q === null ? client.listSessions({ ...query, status: ACTIVE }, { signal }) : NO_SESSIONS,
  ]);
  if (known === null) return mergeSessions([active.sessions, first.sessions], first.next_cursor);

  const fresh = [...first.sessions];
  const newest = known.sessions[0]?.id ?? '';
  let cursor = first.next_cursor;
  for (let page = 1; cursor !== null && (fresh.at(-1)?.id ?? '') > newest && page < GAP_PAGES; page++) {
    const more = await client.listSessions({ ...query, cursor }, { signal });
    fresh.push(...more.sessions);
    cursor = more.next_cursor;
  }
  const oldest = fresh.at(-1)?.id ?? '';
  // Still a gap: begin anew from what is on top.
  if (cursor !== null && oldest > newest) return mergeSessions([active.sessions, fresh], cursor);
  const seen = new Set([...fresh, ...active.sessions].map(({ id }) => id));
  // A session within the pages just read that is no longer there was purged.
  const rest = known.sessions.filter(({ id }) => cursor !== null && id < oldest);
  const settled = rest.filter(({ id, status }) => isActive(status) && !seen.has(id)).slice(0, SETTLED_AT_ONCE);
  const again = await Promise.all(settled.map(({ id }) => client.getSession(id, { signal }).catch(() => null)));
  return mergeSessions(
    [rest, again.filter((session) => session !== null), active.sessions, fresh],
    rest.length > 0 ? known.next : cursor,
  );
}

async function older({ client, query, known }: Question<SessionList>, signal: AbortSignal): Promise<SessionList> {
  if (known.next === null) return known;
  const page = await client.listSessions(
    { ...buildListQuery(query), limit: OLDER_PAGE, cursor: known.next },
    { signal },
  );
  return mergeSessions([page.sessions, known.sessions], page.next_cursor);
}

function buildListQuery({ include_workers, state, worker_name, door, owner, q }: ListQuery) {
  return {
    include_workers,
    limit: PAGE,
    ...(state === 'failed' && { failed: true }),
    ...(state !== null && state !== 'failed' && { status: [state] }),
    ...(worker_name !== null && { worker_name }),
    ...(door !== null && { door }),
    ...(owner !== null && { owner }),
    ...(q !== null && { q }),
  };
}

export function isActive(status: Session['status']): boolean {
  return (ACTIVE as readonly string[]).includes(status);
}

/** Later groups win. Ids order by the time of creation. */
function mergeSessions(groups: readonly (readonly Session[])[], next: string | null): SessionList {
  const byId = new Map(groups.flat().map((session) => [session.id, session]));
  return { sessions: [...byId.values()].sort((a, b) => (a.id < b.id ? 1 : -1)), next };
}

/** One question after the other, each from what the one before has left. */
export function createSessionLoader(client: MetisClient, query: ListQuery) {
  let known: SessionList | null = null;
  let last: Promise<unknown> = Promise.resolve();
  const runInTurn = (step: () => Promise<SessionList>): Promise<SessionList> => {
    const done = last.then(step).then((list) => {
      known = list;
      return list;
    });
    last = done.catch(() => {});
    return done;
  };
  return {
    refresh: (signal: AbortSignal) => runInTurn(() => refresh({ client, query, known }, signal)),
    older: (signal: AbortSignal) =>
      runInTurn(() => {
        if (known === null) return refresh({ client, query, known }, signal);
        return older({ client, query, known }, signal);
      }),
  };
}
