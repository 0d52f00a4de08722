// All reads over one database of a cluster (ports/store).

import type { IdempotencyRow } from '#core/ports/journal.ts';
import type { PriceVersionRecord, PriceVersions } from '#core/ports/price-versions.ts';
import type { Store } from '#core/ports/store.ts';
import { StorageFault } from '#protocol/batch.ts';
import type { TrustedFile } from '#protocol/trusted-file.ts';
import { KEYED, META, PRICE_VERSION, PRICE_VERSIONS, PROBE } from '#store/read/meta.ts';
import * as workers from '#store/read/session-workers.ts';
import * as trusted from '#store/read/trusted-files.ts';
import type { Pool } from '../connection/pool.ts';
import { type Reads, readsOver } from '../connection/reads.ts';
import { journalFault } from '../write/conflict.ts';
import { createConfirmationReader } from './confirmation-reader.ts';
import { createDelegationReader } from './delegation-reader.ts';
import { createEventReader } from './event-reader.ts';
import { createMessageReader, type KnownHistories } from './message-reader.ts';
import { createPatternReader } from './pattern-reader.ts';
import { createSessionReader, type KnownSessions } from './session-reader.ts';
import { createSpend, createSpendReader } from './spend-reader.ts';
import { createTurnReader } from './turn-reader.ts';

/** What is kept decoded of held trees. */
export interface Known {
  readonly histories: KnownHistories;
  readonly sessions: KnownSessions;
}

const NOTHING: Known = {
  histories: { get: () => null, put: () => {} },
  sessions: { get: () => null, put: () => {} },
};
const NEWEST_MESSAGES = 50;
const MAX_LISTED = 1000;

export function createStore(pool: Pool, known: Known): Store {
  const reads = readsOver(pool.send);
  return {
    ...readersOver(reads, known),
    // An expired row stays until a later key is stored; the caller compares `expires_at`.
    idempotency: async (method, path, tokenHash, key) =>
      (await reads.get<IdempotencyRow>(KEYED, method, path, tokenHash, key)) ?? null,
    // Nothing that is kept: all of it is of one moment.
    snapshot: (sessionId, includeWorkers) =>
      pool.atOneMoment((send) => snapshotOf(readersOver(readsOver(send), NOTHING), sessionId, includeWorkers)),
    meta: async (key) => (await reads.get<{ value: string }>(META, key))?.value ?? null,
    writeFault: async () => {
      try {
        await pool.send(PROBE, []);
        return null;
      } catch (error) {
        const fault = journalFault(error);
        return fault instanceof StorageFault ? fault.message : 'the database cannot be written';
      }
    },
  };
}

type Readers = Omit<Store, 'idempotency' | 'snapshot' | 'meta' | 'writeFault'>;

function readersOver(reads: Reads, { histories, sessions }: Known): Readers {
  const spend = createSpend(reads);
  return {
    sessions: createSessionReader(reads, spend, sessions),
    turns: createTurnReader(reads, spend),
    messages: createMessageReader(reads, histories),
    events: createEventReader(reads),
    delegations: createDelegationReader(reads, spend),
    confirmations: createConfirmationReader(reads),
    spend: createSpendReader(reads, spend),
    patterns: createPatternReader(reads),
    workers: {
      get: async (root, name) => {
        const row = await reads.get<workers.WorkerRow>(workers.BY_NAME, root, name);
        return row === undefined ? null : workers.sessionWorker(row);
      },
      list: async (root) => (await reads.all<workers.WorkerRow>(workers.OF_TREE, root)).map(workers.sessionWorker),
    },
    trustedFiles: {
      digest: async (workspace, path) =>
        (await reads.get<{ readonly sha256: string }>(trusted.DIGEST, workspace, path))?.sha256 ?? null,
      list: (workspace) => reads.all<TrustedFile>(trusted.LIST, workspace),
    },
  };
}

async function snapshotOf(
  { sessions, messages, events, confirmations, delegations }: Readers,
  sessionId: string,
  includeWorkers: boolean,
): ReturnType<Store['snapshot']> {
  const record = await sessions.record(sessionId);
  if (record === null) return null;
  const [session, page, newest, prompts, workers] = await Promise.all([
    sessions.view(sessionId),
    messages.page(sessionId, { before: null, after: null, limit: NEWEST_MESSAGES }),
    events.newestId(record.root_session_id),
    confirmations.list({ session_id: sessionId, status: 'pending', after: null, limit: MAX_LISTED }),
    includeWorkers ? delegations.list(sessionId, { recursive: true, after: null, limit: MAX_LISTED }) : null,
  ]);
  return {
    session: session!,
    messages: page.messages,
    snapshot_at_event_id: newest,
    pending_confirmations: prompts.rows,
    workers: workers?.rows ?? null,
  };
}

export function createPriceVersionReader(pool: Pool): PriceVersions {
  const { all, get } = readsOver(pool.send);
  return {
    get: async (version) => (await get<PriceVersionRecord>(PRICE_VERSION, version)) ?? null,
    list: () => all<PriceVersionRecord>(PRICE_VERSIONS),
  };
}
