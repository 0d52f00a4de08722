// A session as it stands at one moment, for a client that joins (06 §4.1).
import type Database from 'better-sqlite3';
import type { Store } from '#core/ports/store.ts';

const NEWEST_MESSAGES = 50;
const MAX_LISTED = 1000;

export function createSnapshot(
  db: Database.Database,
  {
    sessions,
    messages,
    events,
    confirmations,
    delegations,
  }: Pick<Store, 'sessions' | 'messages' | 'events' | 'confirmations' | 'delegations'>,
): Store['snapshot'] {
  return async (sessionId, includeWorkers) => {
    // The readers query before their promise is returned, so all of it happens inside this transaction.
    const reads = db.transaction(() => ({
      session: sessions.view(sessionId),
      page: messages.page(sessionId, { before: null, after: null, limit: NEWEST_MESSAGES }),
      newest: events.newestId(),
      prompts: confirmations.list({ session_id: sessionId, status: 'pending', after: null, limit: MAX_LISTED }),
      workers: includeWorkers
        ? delegations.list(sessionId, { recursive: true, after: null, limit: MAX_LISTED })
        : Promise.resolve(null),
    }))();
    const session = await reads.session;
    const page = await reads.page;
    const newest = await reads.newest;
    const prompts = await reads.prompts;
    const workers = await reads.workers;
    if (session === null) return null;
    return {
      session,
      messages: page.messages,
      snapshot_at_event_id: newest,
      pending_confirmations: prompts.rows,
      workers: workers?.rows ?? null,
    };
  };
}
