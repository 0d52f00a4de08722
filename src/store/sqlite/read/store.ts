// All reads over one open database (ports/store).

import type { IdempotencyRow } from '#core/ports/journal.ts';
import type { Store } from '#core/ports/store.ts';
import { StorageFault } from '#protocol/batch.ts';
import { KEYED, META, PROBE } from '#store/read/meta.ts';
import type { SqliteStoreHandle } from '../connection/open.ts';
import { journalFault } from '../write/conflict.ts';
import { createConfirmationReader } from './confirmation-reader.ts';
import { createDelegationReader } from './delegation-reader.ts';
import { createEventReader } from './event-reader.ts';
import { createMessageReader } from './message-reader.ts';
import { createPatternReader } from './pattern-reader.ts';
import { createSessionReader } from './session-reader.ts';
import { createSessionWorkerReader } from './session-worker-reader.ts';
import { createSnapshot } from './snapshot.ts';
import { createSpend, createSpendReader } from './spend-reader.ts';
import { createTrustedFileReader } from './trusted-file-reader.ts';
import { createTurnReader } from './turn-reader.ts';

/** Statements are prepared here, once. Reads go over the writer's connection: its page cache is the warm one. */
export function createStore(handle: SqliteStoreHandle): Store {
  const { db } = handle;
  const spend = createSpend(db);
  const readers = {
    sessions: createSessionReader(handle, spend),
    turns: createTurnReader(handle, spend),
    messages: createMessageReader(handle),
    events: createEventReader(handle),
    delegations: createDelegationReader(handle, spend),
    confirmations: createConfirmationReader(handle),
    spend: createSpendReader(db, spend),
    workers: createSessionWorkerReader(handle),
    trustedFiles: createTrustedFileReader(handle),
    patterns: createPatternReader(db),
  };
  const keyed = db.prepare<[string, string, string, string], IdempotencyRow>(KEYED);
  const metaValue = db.prepare<[string], string>(META).pluck();
  const probe = db.prepare(PROBE);
  return {
    ...readers,
    // An expired row stays until a later key is stored; the caller compares `expires_at`.
    idempotency: async (method, path, tokenHash, key) => keyed.get(method, path, tokenHash, key) ?? null,
    snapshot: createSnapshot(db, readers),
    meta: async (key) => metaValue.get(key) ?? null,
    writeFault: async () => {
      try {
        probe.run();
        return null;
      } catch (error) {
        const fault = journalFault(error);
        return fault instanceof StorageFault ? fault.message : 'the database cannot be written';
      }
    },
  };
}
