// Sessions: records for the engine, wire objects with their derived fields for people (01 §7.1).

import { type SessionFacts, sessionView } from '#core/policy/session/session-view.ts';
import type { SessionReader } from '#core/ports/store.ts';
import type { SessionId } from '#protocol/ids.ts';
import type { Session, SessionRecord } from '#protocol/session.ts';
import { pageOf } from '#store/read/page.ts';
import type { KnownSession } from '#store/read/sessions.ts';
import * as sql from '#store/read/sessions.ts';
import { type SessionRow, sessionRecord, usdOrNull } from '#store/schema/rows.ts';
import type { Reads } from '../connection/reads.ts';
import type { Spend } from './spend-reader.ts';
import { createWaiting } from './waiting-reader.ts';

/** Sessions of held trees, which nobody else changes (16 §4.6). */
export interface KnownSessions {
  get(id: string): KnownSession | null;
  put(id: string, known: KnownSession): void;
}

export function createSessionReader(reads: Reads, spend: Spend, kept: KnownSessions): SessionReader {
  const { all, get } = reads;
  const waitingOn = createWaiting(reads);

  async function known(id: string): Promise<KnownSession | null> {
    const found = kept.get(id);
    if (found !== null) return found;
    const row = await get<sql.KnownRow>(sql.KNOWN, id);
    if (row === undefined) return null;
    const { warned_text, ...rest } = row;
    const session = { record: sessionRecord(rest), warned_usd: usdOrNull(warned_text) };
    kept.put(id, session);
    return session;
  }
  async function knownById(text: string, ...values: string[]) {
    const row = await get<{ id: string }>(text, ...values);
    return row === undefined ? null : ((await known(row.id))?.record ?? null);
  }
  async function titleOf(id: string): Promise<string | null> {
    const first = await get<{ content_json: string }>(sql.FIRST_MESSAGE, id);
    return first === undefined ? null : sql.titleOf(first.content_json);
  }

  async function lastModel({ id, door }: SessionRecord): Promise<string | null> {
    if (door === 'gateway') return (await spend.lastCall(id))?.model ?? null;
    return (await get<{ chosen_model: string | null }>(sql.LAST_MODEL, id))?.chosen_model ?? null;
  }

  async function view(row: SessionRow): Promise<Session> {
    const record = sessionRecord(row);
    const { is_worker: isWorker } = record;
    const delegation = isWorker ? await get<sql.DelegationRow>(sql.DELEGATION, row.id) : undefined;
    const [own, open, others, model, descendants, title] = await Promise.all([
      spend.ofSession(row.id),
      get<NonNullable<SessionFacts['open_turn']>>(sql.OPEN_TURN, row.id),
      isWorker ? spend.ofDescendants(row.id) : spend.ofTree(row.id),
      lastModel(record),
      get<SessionFacts['descendants']>(isWorker ? sql.WORKERS_BELOW : sql.WORKERS_OF_TREE, row.id),
      delegation === undefined ? titleOf(row.id) : null,
    ]);
    return sessionView(record, {
      open_turn: open ?? null,
      own,
      workers: isWorker ? others : sql.lessOwn(others, own),
      last_model: model,
      descendants: descendants!,
      delegation: delegation === undefined ? null : sql.delegationFacts(delegation),
      title,
      // A worker runs only under a turn that is open.
      waiting_on: open === undefined ? [] : await waitingOn(row),
    });
  }
  const ids = (rows: readonly { readonly id: SessionId }[]) => rows.map(({ id }) => id);
  const count = async (text: string, ...values: unknown[]) => (await get<{ n: number }>(text, ...values))?.n ?? 0;

  return {
    limit: async (rootSessionId) => {
      const root = await known(rootSessionId);
      if (root === null) return null;
      const { max_cost_usd, on_reached } = root.record;
      return { max_cost_usd, on_reached, warned_usd: root.warned_usd };
    },
    record: async (id) => (await known(id))?.record ?? null,
    ofClient: (caller, ref) => knownById(sql.OF_CLIENT, caller, ref),
    workerOfClient: (root, ref) => knownById(sql.WORKER_OF_CLIENT, root, ref),
    workerOfCaller: (caller, ref) => knownById(sql.WORKER_OF_CALLER, caller, ref),
    view: async (id) => {
      const row = await get<SessionRow>(sql.BY_ID, id);
      return row === undefined ? null : view(row);
    },
    list: async (query) => {
      const asked = sql.pageOf(query);
      const rows = await all<SessionRow>(asked.sql, ...asked.values);
      const page = pageOf(rows, query.limit, (row) => row.id, view);
      return { rows: await Promise.all(page.rows), next: page.next };
    },
    descendants: async (id) => ids(await all<{ id: SessionId }>(sql.DESCENDANTS, id)),
    lineage: async (id) => ids(await all<{ id: SessionId }>(sql.LINEAGE, id)),
    counts: async () => {
      const [active_sessions, active_workers, active_turns] = await Promise.all([
        count(sql.ACTIVE_SESSIONS, 0),
        count(sql.ACTIVE_SESSIONS, 1),
        count(sql.ACTIVE_TURNS),
      ]);
      return { active_sessions, active_workers, active_turns };
    },
  };
}
