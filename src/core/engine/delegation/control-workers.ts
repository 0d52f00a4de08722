// The background workers of a turn as its model manages them, with the tool `workers` (20 §9).
import { cutText } from '#core/policy/cut.ts';
import { deliveryTexts } from '#core/policy/delegation/worker-outcome.ts';
import type { WorkerControl } from '#core/ports/tool-port.ts';
import { Cancelled } from '#protocol/abort.ts';
import type { DelegationRecord, DeliveryRecord } from '#protocol/delegate.ts';
import { JournalConflict } from '#protocol/journal-batch.ts';
import { type ToolUseBlock, textBlock } from '#protocol/message.ts';
import { plainText } from '#protocol/text/plain-text.ts';
import { ToolError, type ToolOutput, toolText, toolTexts } from '#protocol/tool.ts';
import type { BackgroundGroup, BackgroundRun } from '../state/background-groups.ts';
import { throwIfLost } from '../state/concurrency.ts';
import type { DelegationEngine } from '../state/engine.ts';
import type { TurnRun } from '../state/turn-run.ts';
import { describeResult } from './run-worker.ts';

/** Bytes of results in one answer: more would be cut, and what is cut is lost to the model. */
const MAX_RESULT_BYTES = 200_000;
const MAX_TASK_CHARS = 200;

export function createWorkerControl(engine: DelegationEngine, run: TurnRun, call: ToolUseBlock): WorkerControl {
  const findGroup = () => engine.background.get(run.turn.id);
  const requireRunning = async (id: string): Promise<BackgroundRun> => {
    const running = [...(findGroup()?.runs.values() ?? [])].find((one) => one.worker_session_id === id);
    if (running !== undefined) return running;
    const known = (await listWorkers(engine, run)).some((one) => one.worker_session_id === id);
    if (known) throw new ToolError('execution_error', `the worker ${id} does not run`);
    throw unknownWorker([id]);
  };
  return {
    async list() {
      const listed = await listWorkers(engine, run);
      const now = engine.clock.now();
      const rows = listed.map(({ worker_session_id, status, failure_mode, request, created_at, ended_at }) => ({
        id: worker_session_id,
        state: status === 'failed' ? `failed: ${failure_mode}` : status,
        task: cutText(request.task, MAX_TASK_CHARS),
        seconds: Math.max(0, Math.round(((ended_at ?? now) - created_at) / 1000)),
      }));
      return toolText(JSON.stringify(rows));
    },
    wait: (wanted) => waitForWorkers(engine, run, wanted),
    async message(id, text) {
      await requireRunning(id);
      await steer(engine, call, id, text);
      return toolText(`[steered worker ${id}]`);
    },
    async conclude(id) {
      const running = await requireRunning(id);
      await requestConclusion(engine, id);
      running.conclusion.abort();
      return toolText(`[worker ${id} is to answer with what it has]`);
    },
    async cancel(id) {
      const running = await requireRunning(id);
      if (!running.scope.signal.aborted) running.scope.abort(new Cancelled('user_cancel', 'by its planner'));
      return toolText(`[worker ${id} is being cancelled]`);
    },
  };
}

/** The background workers of the turn, in the order of their calls. */
async function listWorkers(engine: DelegationEngine, { session, turn }: TurnRun): Promise<readonly DelegationRecord[]> {
  const all = await engine.store.delegations.ofTurn(session.id, turn.id);
  return all.filter(({ request, worker_session_id }) => request.background === true && worker_session_id !== null);
}

function unknownWorker(ids: readonly string[]): ToolError {
  return new ToolError(
    'not_found',
    `this turn started no background worker ${ids.join(', ')}; list names those it has`,
  );
}

/** Stores a message for the worker's turn. A call that is made again after a restart stores it once. */
async function steer(engine: DelegationEngine, call: ToolUseBlock, id: string, text: string): Promise<void> {
  const session = await engine.store.sessions.record(id);
  const turn = session && (await engine.store.turns.open(session.id));
  if (!turn) throw new ToolError('execution_error', `the worker ${id} is between two turns; send it again`);
  const input_id = call.id.slice('tu_'.length);
  const read = await engine.store.events.listOfTurn(turn.id, ['turn.steered']);
  const waiting = await engine.store.turns.inputs(turn.id);
  if (read.some(({ payload }) => payload.input_id === input_id) || waiting.some((one) => one.id === input_id)) return;
  const input = {
    id: input_id,
    session_id: turn.session_id,
    turn_id: turn.id,
    content: [textBlock(plainText(text))],
    submitted_at: engine.clock.now(),
  };
  try {
    await engine.journal.commit({ writes: [{ kind: 'turn_input.insert', input }], emit: [] });
  } catch (error) {
    if (!(error instanceof JournalConflict)) throw error;
    if (error.code === 'inputs_full')
      throw new ToolError('execution_error', `too many messages wait for the worker ${id}; send it later`);
    throw new ToolError('execution_error', `the worker ${id} has ended`);
  }
  engine.background.wake(turn.id);
}

/** Stores the request with the worker's turn, so that it outlives a restart. */
async function requestConclusion(engine: DelegationEngine, id: string): Promise<void> {
  const session = await engine.store.sessions.record(id);
  const turn = session && (await engine.store.turns.open(session.id));
  if (!turn || turn.concluded_at !== null) return;
  const write = { kind: 'turn.request_conclusion', turn_id: turn.id, at: engine.clock.now() } as const;
  await engine.journal.commit({ writes: [write], emit: [] }).catch((error: unknown) => {
    if (!(error instanceof JournalConflict)) throw error;
  });
}

type Wanted = Parameters<WorkerControl['wait']>[0];

/** One look at the workers that are waited for. */
interface Look {
  readonly workers: readonly DelegationRecord[];
  /** Results that no call has read, by worker. */
  readonly unread: ReadonlyMap<string, DeliveryRecord>;
  /** Why the wait ends, as the model reads it; '' where what was waited for has come; null = it goes on. */
  readonly end: string | null;
}

async function waitForWorkers(engine: DelegationEngine, run: TurnRun, wanted: Wanted): Promise<ToolOutput> {
  const group = engine.background.get(run.turn.id);
  let hasExpired = false;
  const expire = () => {
    hasExpired = true;
    group?.wake();
  };
  const timer = wanted.seconds === null ? null : engine.clock.after(wanted.seconds * 1000, expire);
  try {
    // Only ids that a model has written can be unknown.
    for (let isChecked = wanted.ids === null; ; isChecked = true) {
      const mark = group?.mark() ?? 0;
      throwIfLost(run.signal);
      if (run.signal.aborted) throw run.signal.reason;
      const goesOn = isChecked && !hasExpired && group !== null && (await isStillWaiting(engine, run, group, wanted));
      if (group === null || !goesOn) {
        const look = await lookAtWorkers(engine, run, { group, wanted, hasExpired });
        if (look.end !== null || group === null) return await describeLook(engine, group, look);
      }
      await group.whenChanged(mark);
    }
  } finally {
    timer?.cancel();
  }
}

/** Whether a wait for all goes on, without a look at the rows of the workers: one of them runs, and no message has come. */
async function isStillWaiting(
  engine: DelegationEngine,
  run: TurnRun,
  { runs }: BackgroundGroup,
  { for: wanted, ids }: Wanted,
): Promise<boolean> {
  if (wanted === 'any' || run.conclusion.signal.aborted || engine.draining.value) return false;
  const isAwaited = (id: string | null) => id !== null && (ids === null || ids.includes(id));
  if (![...runs.values()].some((one) => isAwaited(one.worker_session_id))) return false;
  return (await engine.store.turns.inputs(run.turn.id)).length === 0;
}

async function lookAtWorkers(
  engine: DelegationEngine,
  run: TurnRun,
  {
    group,
    wanted,
    hasExpired,
  }: { readonly group: BackgroundGroup | null; readonly wanted: Wanted; readonly hasExpired: boolean },
): Promise<Look> {
  const all = await listWorkers(engine, run);
  const missing = (wanted.ids ?? []).filter((id) => !all.some((one) => one.worker_session_id === id));
  if (missing.length > 0) throw unknownWorker(missing);
  const workers = all.filter(({ worker_session_id: id }) => wanted.ids === null || wanted.ids.includes(id ?? ''));
  const stored = await engine.store.delegations.deliveries(run.turn.id);
  const unread = new Map(
    stored
      .filter(({ id, read_by }) => read_by === null && group?.taken.has(id) !== true)
      .map((delivery) => [delivery.worker_session_id as string, delivery]),
  );
  const steered = (await engine.store.turns.inputs(run.turn.id)).length > 0;
  const end = findEnd(engine, run, { workers, unread, group, steered, isAny: wanted.for === 'any' });
  return { workers, unread, end: end ?? (hasExpired ? `[the wait ended after ${wanted.seconds} s]` : null) };
}

function findEnd(
  engine: DelegationEngine,
  run: TurnRun,
  {
    workers,
    unread,
    group,
    steered,
    isAny,
  }: Pick<Look, 'workers' | 'unread'> & {
    readonly group: BackgroundGroup | null;
    readonly steered: boolean;
    readonly isAny: boolean;
  },
): string | null {
  const open = workers.filter(({ ended_at }) => ended_at === null);
  const hasResult = workers.some(({ worker_session_id: id }) => unread.has(id ?? ''));
  if (open.length === 0 || (isAny && hasResult)) return '';
  if (steered) return '[the wait ended: a message for you has come]';
  if (run.conclusion.signal.aborted || engine.draining.value) return '[the wait ended: the turn is to stop]';
  // Interrupted workers go on when their turn does.
  if (group === null || !open.some(({ tool_use_id }) => group.runs.has(tool_use_id))) return '[the wait ended: paused]';
  return null;
}

/** The states, and the results that fit, which count as read by this call. */
async function describeLook(
  engine: DelegationEngine,
  group: BackgroundGroup | null,
  { workers, unread, end }: Look,
): Promise<ToolOutput> {
  // Taken before the next await: two calls at once must not read the same result.
  const own = takeResults(group, workers, unread);
  const texts: string[] = [];
  const notes: string[] = [];
  const deliveries: string[] = [];
  let bytes = 0;
  for (const delegation of workers) {
    const { worker_session_id: id, status, ended_at } = delegation;
    const delivery = own.get(id ?? '');
    if (delivery === undefined) {
      notes.push(`[worker ${id} ${ended_at === null ? status : 'has ended; its result was delivered'}]`);
      continue;
    }
    const blocks = deliveryTexts(delegation, await describeResult(engine, delegation));
    bytes += blocks.reduce((sum, text) => sum + Buffer.byteLength(text), 0);
    if (bytes > MAX_RESULT_BYTES) {
      group?.taken.delete(delivery.id);
      notes.push(`[worker ${id} has ended; its result follows as a message]`);
      continue;
    }
    deliveries.push(delivery.id);
    texts.push(...blocks);
  }
  if (workers.length === 0) notes.push('[no worker of this turn runs in the background]');
  if (end !== null && end !== '') notes.push(end);
  return toolTexts(texts, { deliveries, notes });
}

/** The results that no other call has taken, by worker. */
function takeResults(
  group: BackgroundGroup | null,
  workers: Look['workers'],
  unread: Look['unread'],
): ReadonlyMap<string, DeliveryRecord> {
  const own = new Map<string, DeliveryRecord>();
  for (const { worker_session_id: id } of workers) {
    const delivery = unread.get(id ?? '');
    if (delivery === undefined || group === null || group.taken.has(delivery.id)) continue;
    group.taken.add(delivery.id);
    own.set(delivery.worker_session_id, delivery);
  }
  return own;
}
