// All reads over one database (ports/store).
import type { IdempotencyRow } from '#core/ports/journal-writer.ts';
import type { PriceVersionRecord, PriceVersions } from '#core/ports/price-versions.ts';
import type { SessionTokens, Store } from '#core/ports/store-reader.ts';
import type { SessionId } from '#protocol/ids.ts';
import { StorageFault } from '#protocol/journal-batch.ts';
import type { CaseApproval, CaseCallRecord, CaseStart } from '#protocol/what-if/case.ts';
import type { SessionWorker, TrustedFile, TrustedText } from '#protocol/worker-definition.ts';
import { type AttemptRow, attemptRecord, type WorktreeRow, worktreeRecord } from '../schema/rows.ts';
import { READ_META } from '../schema/words.ts';
import { createConfirmationReader } from './approvals.ts';
import { NO_CACHES, type ReadCaches } from './caches.ts';
import { createCallReader } from './calls.ts';
import { createComparisonReader } from './comparisons.ts';
import { createDelegationReader } from './delegations.ts';
import { createEventReader } from './events.ts';
import { createPatternReader } from './patterns.ts';
import { createPeopleReader } from './people.ts';
import { type ReadDatabase, type Reads, toPage } from './read-database.ts';
import { createSessionReader } from './sessions.ts';
import { createSpend, createSpendReader, type Spend } from './spend.ts';
import { createTreeCostReader } from './tree-costs.ts';
import { createMessageReader, createTurnReader } from './turns.ts';

const PRICE_VERSION =
  'SELECT version, content_hash, source, models_json, created_at FROM price_versions WHERE version = ?';
const PRICE_VERSIONS =
  'SELECT version, content_hash, source, created_at FROM price_versions ORDER BY created_at DESC, version DESC';
const IDEMPOTENCY_KEY = 'SELECT * FROM idempotency_keys WHERE method = ? AND path = ? AND token_hash = ? AND key = ?';
/** Writes a row: an empty transaction succeeds on a full disk too. */
const PROBE = "INSERT INTO meta (key, value) VALUES ('probe', '') ON CONFLICT (key) DO UPDATE SET value = ''";
const WORKER = 'SELECT * FROM worker_definitions WHERE root_session_id = ? AND name = ?';
const WORKERS = 'SELECT * FROM worker_definitions WHERE root_session_id = ? ORDER BY name';
const TRUSTED_DIGEST = 'SELECT sha256 FROM trusted_files WHERE workspace_path = ? AND path = ?';
const TRUSTED_FILES = `SELECT workspace_path, path, sha256, trusted_by, trusted_at FROM trusted_files
  WHERE workspace_path = ? ORDER BY path`;
const TRUSTED_TEXT = 'SELECT * FROM trusted_files WHERE workspace_path = ? AND path = ?';

const WORKTREE = 'SELECT * FROM worktrees WHERE session_id = ?';
const WORKTREES = 'SELECT * FROM worktrees ORDER BY session_id DESC';
const WORKTREES_OF_TREE = `SELECT * FROM worktrees
  WHERE session_id IN (SELECT id FROM sessions WHERE root_session_id = ?) ORDER BY session_id DESC`;

const ATTEMPTS = 'SELECT * FROM delegation_attempts WHERE tool_use_id = ? ORDER BY attempt';
const OPEN_ATTEMPTS = 'SELECT * FROM delegation_attempts WHERE ended_at IS NULL ORDER BY tool_use_id';
const OPEN_ATTEMPTS_OF_TREE = `SELECT a.* FROM delegation_attempts a JOIN sessions s ON s.id = a.worker_session_id
  WHERE a.ended_at IS NULL AND s.root_session_id = ? ORDER BY a.tool_use_id`;

const NEWEST_MESSAGES = 50;
const MAX_LISTED = 1000;

export function createStore(database: ReadDatabase, caches: ReadCaches): Store {
  const { reads, probe, journalFault } = database;
  return {
    ...createReaders(database, reads, caches),
    // An expired row stays until a later key is stored; the caller compares `expires_at`.
    idempotency: async (method, path, tokenHash, key) =>
      (await reads.get<IdempotencyRow>(IDEMPOTENCY_KEY, method, path, tokenHash, key)) ?? null,
    // Without the caches, so that all values are of one moment.
    snapshot: (sessionId, includeWorkers) =>
      database.atOneMoment((moment) =>
        readSnapshot(
          { ...createReaders(database, moment, NO_CACHES), sums: createSpend(moment) },
          sessionId,
          includeWorkers,
        ),
      ),
    meta: async (key) => (await reads.get<{ value: string }>(READ_META, key))?.value ?? null,
    writeFault: async () => {
      try {
        await probe(PROBE);
        return null;
      } catch (error) {
        const fault = journalFault(error);
        if (fault instanceof StorageFault) return fault.message;
        return 'the database cannot be written';
      }
    },
  };
}

type Readers = Omit<Store, 'idempotency' | 'snapshot' | 'meta' | 'writeFault'>;

function createReaders({ together, eventMarks }: ReadDatabase, reads: Reads, caches: ReadCaches): Readers {
  const spend = createSpend(reads);
  return {
    sessions: createSessionReader(reads, { spend, caches, together }),
    turns: createTurnReader(reads, spend, caches),
    messages: createMessageReader(reads, caches),
    events: { ...createEventReader(reads), ...eventMarks(reads) },
    delegations: createDelegationReader(reads, spend),
    confirmations: createConfirmationReader(reads),
    spend: createSpendReader(reads, spend),
    calls: createCallReader(reads),
    comparisons: createComparisonReader(reads),
    patterns: createPatternReader(reads),
    people: createPeopleReader(reads),
    treeCosts: createTreeCostReader(reads),
    workers: {
      get: async (root, name) => {
        const row = await reads.get<WorkerRow>(WORKER, root, name);
        if (row === undefined) return null;
        return sessionWorker(row);
      },
      list: async (root) => (await reads.all<WorkerRow>(WORKERS, root)).map(sessionWorker),
    },
    trustedFiles: {
      digest: async (workspace, path) =>
        (await reads.get<{ readonly sha256: string }>(TRUSTED_DIGEST, workspace, path))?.sha256 ?? null,
      list: async (workspace) => reads.all<TrustedFile>(TRUSTED_FILES, workspace),
      find: async (workspace, path) => (await reads.get<TrustedText>(TRUSTED_TEXT, workspace, path)) ?? null,
    },
    cases: {
      start: async (session) => {
        const row = await reads.get<{ readonly start_json: string }>(CASE_START, session);
        if (row === undefined) return null;
        return JSON.parse(row.start_json) as CaseStart;
      },
      approvals: async (root) =>
        (await reads.all<CaseApprovalRow>(CASE_APPROVALS, root)).map(
          ({ input_json, modified_json, scope, ...row }) => ({
            ...row,
            scope: scope ?? 'once',
            input: JSON.parse(input_json) as CaseApproval['input'],
            modified_input: modified_json === null ? null : (JSON.parse(modified_json) as CaseApproval['input']),
          }),
        ),
      calls: async (root, after, limit) => {
        const rows = await reads.all<CaseCallRow>(CASE_CALLS, root, after ?? '', limit + 1);
        return toPage(
          rows,
          limit,
          (row) => row.request_id,
          ({ call_json, ...row }) => ({
            ...row,
            call: JSON.parse(call_json) as CaseCallRecord['call'],
          }),
        );
      },
    },
    attempts: {
      list: async (toolUseId) => (await reads.all<AttemptRow>(ATTEMPTS, toolUseId)).map(attemptRecord),
      allOpen: async (root) => {
        const rows =
          root === undefined
            ? await reads.all<AttemptRow>(OPEN_ATTEMPTS)
            : await reads.all<AttemptRow>(OPEN_ATTEMPTS_OF_TREE, root);
        return rows.map(attemptRecord);
      },
    },
    worktrees: {
      get: async (session) => {
        const row = await reads.get<WorktreeRow>(WORKTREE, session);
        if (row === undefined) return null;
        return worktreeRecord(row);
      },
      list: async (root) => {
        if (root === undefined) return (await reads.all<WorktreeRow>(WORKTREES)).map(worktreeRecord);
        return (await reads.all<WorktreeRow>(WORKTREES_OF_TREE, root)).map(worktreeRecord);
      },
    },
  };
}

const CASE_START = 'SELECT start_json FROM case_starts WHERE session_id = ?';
const CASE_CALLS = `SELECT request_id, session_id, call_json FROM case_calls
  WHERE root_session_id = ? AND request_id > ? ORDER BY request_id LIMIT ?`;
const CASE_APPROVALS = `SELECT tool_name, input_json, decision, scope, reason, modified_json FROM confirmations
  WHERE session_id IN (SELECT id FROM sessions WHERE root_session_id = ?) AND resolved_by = 'user'
    AND decision IN ('approve', 'reject', 'modify') ORDER BY id`;
type CaseApprovalRow = Pick<CaseApproval, 'tool_name' | 'decision' | 'reason'> & {
  readonly scope: CaseApproval['scope'] | null;
  readonly input_json: string;
  readonly modified_json: string | null;
};
type CaseCallRow = Pick<CaseCallRecord, 'request_id' | 'session_id'> & { readonly call_json: string };

type WorkerRow = Omit<SessionWorker, 'edited_by_user'> & { readonly edited_by_user: number };

function sessionWorker(row: WorkerRow): SessionWorker {
  return { ...row, edited_by_user: row.edited_by_user === 1 };
}

/** A session at one moment, for a client that joins (06 §4.1). */
async function readSnapshot(
  { sessions, messages, events, confirmations, delegations, sums }: Readers & { readonly sums: Spend },
  sessionId: string,
  includeWorkers: boolean,
): ReturnType<Store['snapshot']> {
  const record = await sessions.record(sessionId);
  if (record === null) return null;
  const [session, page, newest, approvals, workers] = await Promise.all([
    sessions.view(sessionId),
    messages.page(sessionId, { before: null, after: null, limit: NEWEST_MESSAGES }),
    events.newestId(record.root_session_id),
    confirmations.list({ session_id: sessionId, reader: null, status: 'pending', after: null, limit: MAX_LISTED }),
    includeWorkers ? delegations.list(sessionId, { recursive: true, after: null, limit: MAX_LISTED }) : null,
  ]);
  const ids = [record.id, ...(workers?.rows ?? []).flatMap(({ worker_session_id: id }) => id ?? [])];
  return {
    session: session!,
    tokens: await Promise.all(ids.map((id) => readTokens(sums, id))),
    messages: page.messages,
    snapshot_at_event_id: newest,
    pending_confirmations: approvals.rows,
    workers: workers?.rows ?? null,
  };
}

async function readTokens(sums: Spend, session_id: SessionId): Promise<SessionTokens> {
  const { input_tokens, cached_input_tokens, cache_creation_input_tokens, output_tokens } =
    await sums.calls(session_id);
  return { session_id, input_tokens, cached_input_tokens, cache_creation_input_tokens, output_tokens };
}

export function createPriceVersionReader({ all, get }: Reads): PriceVersions {
  return {
    get: async (version) => (await get<PriceVersionRecord>(PRICE_VERSION, version)) ?? null,
    list: async () => all<PriceVersionRecord>(PRICE_VERSIONS),
  };
}
