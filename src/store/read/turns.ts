// Turns and their tool calls; tokens and money of a turn come from the ledger (01 §8).
import { deliveryTexts, formatForPlanner } from '#core/policy/delegation/worker-outcome.ts';
import type { MessageReader, TurnReader, TurnTotals } from '#core/ports/store-reader.ts';
import { continueWith } from '#protocol/async/awaitable.ts';
import { isoTime } from '#protocol/clock.ts';
import type { DelegationRecord } from '#protocol/delegate.ts';
import type { PayloadOf } from '#protocol/event.ts';
import type { SessionId } from '#protocol/ids.ts';
import { type ContentBlock, joinText } from '#protocol/message.ts';
import { fromPusd, limitFor, type Pusd, sumPusd, toPusd } from '#protocol/money.ts';
import { toPersonRef } from '#protocol/people/person.ts';
import { compareText } from '#protocol/text/compare-text.ts';
import { OPEN_TURN_STATUSES, type Turn, type TurnInput } from '#protocol/turn.ts';
import { PREFIX_CHECKPOINTS, PREFIX_MESSAGES } from '../schema/fork-prefix.ts';
import {
  type CheckpointRow,
  checkpoint,
  type DelegationRow,
  delegationRecord,
  isoOrNull,
  LIMIT_AS_TEXT,
  type MessageRow,
  selectPersonName,
  storedMessage,
  type ToolCallRowStored,
  type TurnInputRow,
  type TurnRow,
  toolCallState,
  turnInput,
  turnRecord,
  userScore,
  wireMessage,
} from '../schema/rows.ts';
import { BEHIND_ALL, TURN_IS_OPEN, TURN_T_IS_OPEN } from '../schema/words.ts';
import { createHistoryCache, type ReadCaches } from './caches.ts';
import { LAST_OF_TURN } from './events.ts';
import { type Reads, toPage } from './read-database.ts';
import type { Spend } from './spend.ts';

const OPEN_WITH_SESSION = `SELECT t.* FROM turns t JOIN sessions s ON s.id = t.session_id WHERE ${TURN_T_IS_OPEN}`;
const DEEPEST_FIRST = 'ORDER BY s.delegation_depth DESC, t.id';

const SHOWN = `SELECT turns.*, ${selectPersonName('turns.submitted_by')} FROM turns`;
const BY_ID = `${SHOWN} WHERE session_id = ? AND id = ?`;
const OPEN = `SELECT * FROM turns WHERE session_id = ? AND ${TURN_IS_OPEN}`;
const PAGE = `${SHOWN} WHERE session_id = ? AND id < ? ORDER BY id DESC LIMIT ?`;
const FIRST = 'SELECT * FROM turns WHERE session_id = ? ORDER BY id LIMIT 1';
const COUNT = 'SELECT count(*) AS n FROM turns WHERE session_id = ?';
const ALL_OPEN = `${OPEN_WITH_SESSION} ${DEEPEST_FIRST}`;
const OPEN_OF_TREE = `${OPEN_WITH_SESSION} AND s.root_session_id = ? ${DEEPEST_FIRST}`;
const CALLS = 'SELECT * FROM tool_calls WHERE turn_id = ? ORDER BY message_id, id';
const CALL = 'SELECT * FROM tool_calls WHERE id = ?';
const SETTLED_CALLS = 'SELECT count(*) AS n FROM tool_calls WHERE turn_id = ? AND result_json IS NOT NULL';
const INPUTS = 'SELECT * FROM turn_inputs WHERE turn_id = ? ORDER BY id';
/** Results of background workers that the turn has not read. */
const RESULTS = `SELECT e.id AS delivery_id, e.created_at AS closed_at, d.*, ${LIMIT_AS_TEXT}
  FROM deliveries e JOIN delegations d ON d.worker_session_id = e.worker_session_id
  WHERE e.turn_id = ? AND e.delivered_at IS NULL ORDER BY e.id`;
const ANSWERS = "SELECT content_json FROM messages WHERE turn_id = ? AND role = 'assistant' ORDER BY id DESC";
/** Workers that a turn opened. */
export const WORKERS_OF_TURN = `SELECT worker_session_id AS id FROM delegations
  WHERE parent_session_id = ? AND parent_turn_id = ? AND worker_session_id IS NOT NULL ORDER BY worker_session_id`;
/** A worker's output belongs to its last turn. */
const HANDED_BACK = `SELECT output_json FROM delegations WHERE worker_session_id = ? AND status = 'completed'
  AND ? = (SELECT max(id) FROM turns WHERE session_id = worker_session_id)`;

function isOpen(row: TurnRow): boolean {
  return (OPEN_TURN_STATUSES as readonly string[]).includes(row.status);
}

/** The worker's output, if it is an object. */
function parseHandedBack(output_json: string | null | undefined): Turn['output'] {
  if (output_json === null || output_json === undefined) return null;
  const object = JSON.parse(output_json) as DelegationRecord['output'];
  if (typeof object === 'object') return object;
  return null;
}

/** The text of an answer. */
export function parseAnswerText(content_json: string): string {
  return joinText(JSON.parse(content_json) as ContentBlock[]);
}

/** The last refusal of a limit, where one ended or interrupted the turn. */
function parseBudgetRefusal(payload_json: string | undefined): Turn['budget_refusal'] {
  if (payload_json === undefined) return null;
  const refusal = JSON.parse(payload_json) as PayloadOf<'budget.exceeded'>;
  const { scope, limit_usd, spent_usd, reserved_usd, needed_usd } = refusal;
  const sufficient_limit_usd = limitFor(sumPusd([toPusd(spent_usd), toPusd(reserved_usd), toPusd(needed_usd)]));
  return { scope, limit_usd, spent_usd, reserved_usd, needed_usd, sufficient_limit_usd };
}

type ResultRow = DelegationRow & { readonly delivery_id: string; readonly closed_at: number };

function resultInput({ delivery_id: id, closed_at, ...row }: ResultRow): TurnInput {
  const delegation = delegationRecord(row);
  const text = deliveryTexts(delegation, formatForPlanner(delegation, null)).join('\n');
  return { id, text, submitted_at: isoTime(closed_at) };
}

function sentInput(row: TurnInputRow): TurnInput {
  const { id, content, submitted_at } = turnInput(row);
  return { id, text: joinText(content), submitted_at: isoTime(submitted_at) };
}

interface TurnFacts {
  readonly totals: TurnTotals;
  /** In the order in which they came. */
  readonly inputs: readonly TurnInput[];
  readonly workers: readonly SessionId[];
  readonly workers_cost: Pusd;
  /** Of an open turn. */
  readonly settled_calls: number;
  /** Of an ended turn. */
  readonly output: Turn['output'];
  readonly budget_refusal: Turn['budget_refusal'];
}

function turnView(row: TurnRow, { totals, workers, workers_cost, settled_calls, output, ...facts }: TurnFacts): Turn {
  const { tools, resume_attempts, concluded_at, conclusion_message_id, submitted_by, shape_sig, forecast, ...turn } =
    turnRecord(row);
  const open = isOpen(row);
  return {
    ...turn,
    // The counts of a running turn are written at its end; until then the ledger has them.
    llm_call_count: open ? Math.max(turn.llm_call_count, totals.calls) : turn.llm_call_count,
    tool_call_count: open ? settled_calls : turn.tool_call_count,
    total_input_tokens: totals.input_tokens,
    total_cached_input_tokens: totals.cached_input_tokens,
    total_cache_creation_input_tokens: totals.cache_creation_input_tokens,
    total_output_tokens: totals.output_tokens,
    total_cost_usd: fromPusd(totals.cost_pusd),
    workers_cost_usd: fromPusd(workers_cost),
    started_at: isoTime(turn.started_at),
    ended_at: isoOrNull(turn.ended_at),
    output: open ? null : output,
    worker_session_ids: [...workers],
    unread_inputs: facts.inputs.length,
    inputs: [...facts.inputs],
    user_score: userScore(row),
    budget_refusal: facts.budget_refusal,
    ...(submitted_by !== null && { submitted_by: toPersonRef(submitted_by, row.person_name ?? null) }),
  };
}

export function createTurnReader({ all, get }: Reads, spend: Spend, caches: ReadCaches): TurnReader {
  const { idle, beginRead } = caches;
  const countRows = async (text: string, id: string) => (await get<{ n: number }>(text, id))?.n ?? 0;
  const readInputs = (id: string) => all<TurnInputRow>(INPUTS, id);

  async function listUnread(id: string): Promise<readonly TurnInput[]> {
    const [sent, results] = await Promise.all([readInputs(id), all<ResultRow>(RESULTS, id)]);
    return [...sent.map(sentInput), ...results.map(resultInput)].sort((a, b) => compareText(a.id, b.id));
  }

  async function readOutput(turn: TurnRow): Promise<Turn['output']> {
    const handed = await get<{ output_json: string | null }>(HANDED_BACK, turn.session_id, turn.id);
    const object = parseHandedBack(handed?.output_json);
    if (object !== null) return object;
    // One at a time: the newest answer nearly always has text.
    for (let newest = 0; ; newest += 1) {
      const answer = await get<{ content_json: string }>(`${ANSWERS} LIMIT 1 OFFSET ?`, turn.id, newest);
      if (answer === undefined) return null;
      const text = parseAnswerText(answer.content_json);
      if (text !== '') return text;
    }
  }

  async function readRefusal({ id, stop_reason, interrupted_reason }: TurnRow): Promise<Turn['budget_refusal']> {
    if (stop_reason !== 'budget_exceeded' && interrupted_reason !== 'budget') return null;
    const last = await get<{ payload_json: string }>(LAST_OF_TURN, id, JSON.stringify(['budget.exceeded']));
    return parseBudgetRefusal(last?.payload_json);
  }

  const listOpened = async (sessionId: string, turnId: string) =>
    (await all<{ id: SessionId }>(WORKERS_OF_TURN, sessionId, turnId)).map(({ id }) => id);

  async function viewTurn(row: TurnRow): Promise<Turn> {
    const open = isOpen(row);
    const [totals, inputs, workers, settled_calls, output, budget_refusal] = await Promise.all([
      spend.sumTurn(row.id),
      listUnread(row.id),
      listOpened(row.session_id, row.id),
      open ? countRows(SETTLED_CALLS, row.id) : 0,
      open ? null : readOutput(row),
      readRefusal(row),
    ]);
    const workers_cost = await spend.sumSubtrees(workers);
    return turnView(row, { totals, inputs, workers, workers_cost, settled_calls, output, budget_refusal });
  }
  const recordOrNull = (row: TurnRow | undefined) => (row === undefined ? null : turnRecord(row));

  return {
    record: async (sessionId, turnId) => recordOrNull(await get<TurnRow>(BY_ID, sessionId, turnId)),
    open(sessionId) {
      if (idle.has(sessionId)) return null;
      const isCurrent = beginRead(sessionId);
      return continueWith(get<TurnRow>(OPEN, sessionId), (row) => {
        if (row === undefined && isCurrent()) idle.set(sessionId, true);
        return recordOrNull(row);
      });
    },
    newest: async (sessionId) => recordOrNull(await get<TurnRow>(PAGE, sessionId, BEHIND_ALL, 1)),
    view: async (sessionId, turnId) => {
      const row = await get<TurnRow>(BY_ID, sessionId, turnId);
      if (row === undefined) return null;
      return viewTurn(row);
    },
    list: async (sessionId, before, limit) => {
      const rows = await all<TurnRow>(PAGE, sessionId, before ?? BEHIND_ALL, limit + 1);
      const page = toPage(rows, limit, (row) => row.id, viewTurn);
      return { rows: await Promise.all(page.rows), next: page.next };
    },
    first: async (sessionId) => recordOrNull(await get<TurnRow>(FIRST, sessionId)),
    count: (sessionId) => countRows(COUNT, sessionId),
    allOpen: async (root) =>
      (root === undefined ? await all<TurnRow>(ALL_OPEN) : await all<TurnRow>(OPEN_OF_TREE, root)).map(turnRecord),
    inputs: async (turnId) => (await readInputs(turnId)).map(turnInput),
    toolCalls: async (turnId) => (await all<ToolCallRowStored>(CALLS, turnId)).map(toolCallState),
    toolCall: async (id) => {
      const row = await get<ToolCallRowStored>(CALL, id);
      if (row === undefined) return null;
      return toolCallState(row);
    },
    totals: (turnId) => spend.sumTurn(turnId),
    workersCost: async (sessionId, turnId) => spend.sumSubtrees(await listOpened(sessionId, turnId)),
  };
}

// Messages: the whole history of a turn with its checkpoints, and pages of wire objects (05 §3.4).

/** Without `provider_raw`, which never leaves the engine. */
type WireRow = Omit<MessageRow, 'provider_raw_json'>;
const WIRE_COLUMNS = 'id, session_id, turn_id, role, status, created_at, metadata_json, content_json';
const BETWEEN = `SELECT ${WIRE_COLUMNS} FROM messages WHERE session_id = ? AND id > ? AND id < ? ORDER BY id`;

const ALL = 'SELECT * FROM messages WHERE session_id = ? ORDER BY id';
const CHECKPOINTS = 'SELECT * FROM compaction_checkpoints WHERE session_id = ? ORDER BY id';
const MESSAGE_BY_ID = `SELECT ${WIRE_COLUMNS} FROM messages WHERE id = ?`;
const OLDEST = `${BETWEEN} ASC LIMIT ?`;
const NEWEST = `${BETWEEN} DESC LIMIT ?`;
const ANY_BELOW = 'SELECT 1 AS found FROM messages WHERE session_id = ? AND id < ? LIMIT 1';
const ANY_ABOVE = 'SELECT 1 AS found FROM messages WHERE session_id = ? AND id > ? LIMIT 1';

/** Length of the JSON texts that a history is decoded from. */
function historyBytes(rows: readonly MessageRow[]): number {
  return rows.reduce((sum, row) => sum + row.content_json.length + (row.provider_raw_json?.length ?? 0), 0);
}

const PREFIX_BYTES = 16 * 1024 * 1024;

export function createMessageReader({ all, get }: Reads, caches: ReadCaches): MessageReader {
  const { histories: cache, sessions, whole, beginRead } = caches;
  // The prefix of an open fork never changes; that of an ended one may go with its original (23 §4).
  const prefixes = createHistoryCache(PREFIX_BYTES);
  return {
    history(sessionId) {
      const cached = cache.get(sessionId);
      if (cached !== null) return cached;
      const isCurrent = beginRead(sessionId);
      return continueWith(all<MessageRow>(ALL, sessionId), (rows) => {
        const messages = rows.map(storedMessage);
        if (isCurrent()) cache.put(sessionId, messages, historyBytes(rows));
        return messages;
      });
    },
    checkpoints(sessionId) {
      if (whole.has(sessionId)) return [];
      const isCurrent = beginRead(sessionId);
      return continueWith(all<CheckpointRow>(CHECKPOINTS, sessionId), (rows) => {
        if (isCurrent()) whole.set(sessionId, rows.length === 0);
        return rows.map(checkpoint);
      });
    },
    prefix: async (forkId) => {
      const known = prefixes.get(forkId);
      if (known !== null && sessions.get(forkId)?.record.ended_at === null) return known;
      const rows = await all<MessageRow>(PREFIX_MESSAGES, forkId);
      const messages = rows.map(storedMessage);
      prefixes.put(forkId, messages, historyBytes(rows));
      return messages;
    },
    prefixCheckpoints: async (forkId) => (await all<CheckpointRow>(PREFIX_CHECKPOINTS, forkId)).map(checkpoint),
    get: async (messageId) => {
      const row = await get<WireRow>(MESSAGE_BY_ID, messageId);
      if (row === undefined) return null;
      return wireMessage(row);
    },
    page: async (sessionId, { before, after, limit }) => {
      const upper = before ?? BEHIND_ALL;
      const rows =
        after === null
          ? (await all<WireRow>(NEWEST, sessionId, '', upper, limit)).toReversed()
          : await all<WireRow>(OLDEST, sessionId, after, upper, limit);
      const first = rows[0]?.id ?? after ?? upper;
      const last = rows.at(-1)?.id ?? before ?? after ?? BEHIND_ALL;
      const [below, above] = await Promise.all([get(ANY_BELOW, sessionId, first), get(ANY_ABOVE, sessionId, last)]);
      return {
        messages: rows.map(wireMessage),
        has_more_before: below !== undefined,
        has_more_after: above !== undefined,
      };
    },
  };
}
