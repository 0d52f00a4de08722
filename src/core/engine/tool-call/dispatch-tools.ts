// The tool step: runs all calls of one message at once, their results in block order (09 §4, §9.1, 04 §8).
import { addUpBill, type BillVerdict, isAboveLimits, readBillAnswer } from '#core/policy/delegation/delegation-bill.ts';
import { describeIssues } from '#core/policy/parsing/plain-issue.ts';
import { InsufficientContextRequestSchema } from '#protocol/delegate.ts';
import type { Issue } from '#protocol/errors.ts';
import { draft, type PayloadOf } from '#protocol/event.ts';
import type { ToolResultBlock, ToolUseBlock } from '#protocol/message.ts';
import { type BillAnswer, BillEditSchema, type BillRow, type DelegationBill } from '#protocol/what-if/cost-ahead.ts';
import { describeBill } from '../approval/approval-subject.ts';
import { answerByPolicy, requestAnswer, toBillAnswer } from '../approval/approve-call.ts';
import { openApplyGroup } from '../state/apply-groups.ts';
import { createSlots, Interrupted, type Slots } from '../state/concurrency.ts';
import type { Entry } from '../state/delegation-runs.ts';
import type { Runtime, Storage, ToolCallEngine } from '../state/engine.ts';
import {
  recordContextRequest,
  recordSettledCalls,
  type ToolResults,
  type TurnBase,
  type TurnPlan,
  type TurnRun,
} from '../state/turn-run.ts';
import { refuseStopped, runTool } from './run-tool.ts';
import { CANCELLED_TEXT, errorResult, settleRefused, type ToolOutcome } from './tool-results.ts';

export interface Dispatched {
  /** One result per call; after an interruption, the results that had settled by then. */
  readonly results: ToolResults;
  /** Why calls are still open. */
  readonly interrupted: Interrupted | null;
}

/**
 * Runs every call that has no result yet. Resolves when the last one has settled; each is stored as it settles.
 * Tool failures are results, never exceptions; only the journal's own faults throw.
 * @param known results stored earlier: of this message's invalid inputs, or from before a restart
 */
export async function dispatchTools(
  engine: ToolCallEngine,
  run: TurnRun,
  calls: readonly ToolUseBlock[],
  known: ToolResults,
): Promise<Dispatched> {
  const results = new Map(known);
  const slots = createSlots(engine.config.tools.max_concurrent_per_session);
  let interrupted: Interrupted | null = null;
  const bill = hasBillLimits(run) ? confirmDelegations(engine, run, calls, known) : null;
  // Each delegation awaits it below; a message without a delegation that waits has no use for its fault.
  bill?.catch(() => {});

  async function settleTool(call: ToolUseBlock, slots: Slots): Promise<void> {
    try {
      const outcome =
        (bill !== null && (await refuseByBill(engine, run, call, bill))) || (await runTool(engine, run, call, slots));
      results.set(call.id, outcome.result);
      recordSettledCalls(run, 1, outcome.event_id);
      engine.applyGroups.get(call.id)?.leave(call.id, null);
    } catch (thrown) {
      engine.applyGroups.get(call.id)?.leave(call.id, thrown);
      if (!(thrown instanceof Interrupted)) throw thrown;
      interrupted ??= thrown;
    }
  }

  for (const question of run.worker ? calls.filter((c) => isContextRequest(run, c)) : []) {
    if (!results.has(question.id)) await settleTool(question, slots);
    const asked = InsufficientContextRequestSchema.safeParse(question.input);
    if (!asked.success || results.get(question.id)?.is_error !== false) continue;
    recordContextRequest(run, asked.data);
    for (const sibling of calls)
      if (!results.has(sibling.id)) results.set(sibling.id, await cancelSibling(engine, run, sibling));
  }
  // Every call is awaited, even after a fault of another one: a tool must not outlive its turn.
  for (const batch of splitBatches(run, calls)) {
    if (interrupted !== null) break;
    const group = openApplyGroup(engine.applyGroups, batch, { tools: run.tools, results });
    const open = batch.filter((call) => !results.has(call.id));
    const begun = new Map<ToolUseBlock, Promise<void>>();
    for (const call of open) {
      // A wait for workers beside the calls that start them finds them stored.
      const starting = isWait(run, call) ? [...begun].filter(([other]) => startsBackground(run, other)) : [];
      const ready = starting.length === 0 ? null : Promise.allSettled(starting.map(([, done]) => done));
      begun.set(call, ready === null ? settleTool(call, slots) : ready.then(() => settleTool(call, slots)));
    }
    const outcomes = await Promise.allSettled(begun.values());
    group.close();
    for (const outcome of outcomes) if (outcome.status === 'rejected') throw outcome.reason;
  }
  return { results, interrupted };
}

/** Waits for the answer to the message's bill. Null for a call that may start; the terms of the answer are noted. */
async function refuseByBill(
  engine: ToolCallEngine,
  run: TurnRun,
  call: ToolUseBlock,
  bill: Promise<BillVerdicts>,
): Promise<ToolOutcome | null> {
  if (findEntry(run, call) === null || run.called.has(call.id)) return null;
  const verdicts = await bill;
  if (verdicts === null) return refuseStopped(engine, run, call);
  const verdict = verdicts.get(call.id);
  if (verdict?.kind === 'refuse')
    return settleRefused(engine, run, call, {
      error_class: verdict.timed_out ? 'confirmation_timeout' : 'user_denied',
      text: verdict.text,
    });
  if (verdict?.terms) run.terms.set(call.id, verdict.terms);
  return null;
}

/** In order: groups that run in parallel, and each barrier alone. */
function splitBatches(
  run: Pick<TurnPlan, 'tools'>,
  calls: readonly ToolUseBlock[],
): readonly (readonly ToolUseBlock[])[] {
  const found: ToolUseBlock[][] = [[]];
  for (const call of calls) {
    if (run.tools.some((tool) => tool.name === call.name && tool.barrier)) found.push([call], []);
    else found.at(-1)?.push(call);
  }
  return found.filter((batch) => batch.length > 0);
}

function isWait({ tools }: Pick<TurnPlan, 'tools'>, { name, input }: ToolUseBlock): boolean {
  return input.action === 'wait' && tools.some((tool) => tool.name === name && tool.manages_workers);
}

/** Such a call has its result as soon as its worker is stored. */
function startsBackground({ tools }: Pick<TurnPlan, 'tools'>, { name, input }: ToolUseBlock): boolean {
  return input.background === true && tools.some((tool) => tool.name === name && tool.spawns !== undefined);
}

function isContextRequest(run: Pick<TurnPlan, 'tools'>, call: ToolUseBlock): boolean {
  return run.tools.some((tool) => tool.name === call.name && tool.requests_context);
}

/** Rejects a sibling of a valid context request; it is never started. */
async function cancelSibling(engine: Runtime & Storage, run: TurnBase, call: ToolUseBlock): Promise<ToolResultBlock> {
  const result = errorResult(call.id, CANCELLED_TEXT);
  await engine.journal.commit({
    writes: [{ kind: 'tool_call.settle', id: call.id, status: 'cancelled', result, at: engine.clock.now() }],
    emit: [
      draft({
        type: 'tool.failed',
        session_id: run.session.id,
        turn_id: run.turn.id,
        parent: run.call_event_id,
        payload: { tool_use_id: call.id, error_class: 'cancelled', error_message: CANCELLED_TEXT, latency_ms: 0 },
      }),
    ],
  });
  recordSettledCalls(run, 1);
  return result;
}

// The bill before it runs: prices the delegations of one message, and has them confirmed together above a limit (21 §1).

/** By call; a delegation without a verdict starts. Null = the turn was stopped before there was an answer. */
export type BillVerdicts = ReadonlyMap<string, BillVerdict> | null;

const NO_VERDICTS: BillVerdicts = new Map();

/** The kind of delegation that a call is; null for any other tool. */
export function findEntry(run: Pick<TurnRun, 'tools'>, call: ToolUseBlock): Entry | null {
  return run.tools.find(({ name }) => name === call.name)?.spawns ?? null;
}

/** Whether the session has a limit at all. Without one nothing is priced. */
export function hasBillLimits({ session }: Pick<TurnRun, 'session'>): boolean {
  return session.confirm_above_pusd !== null || session.confirm_above_workers !== null;
}

export async function confirmDelegations(
  engine: ToolCallEngine,
  run: TurnRun,
  calls: readonly ToolUseBlock[],
  known: ToolResults,
): Promise<BillVerdicts> {
  const open = calls.filter((call) => !known.has(call.id) && !run.called.has(call.id));
  const delegations = open.flatMap((call) => {
    const entry = findEntry(run, call);
    return entry === null ? [] : [{ call, entry }];
  });
  const [first] = delegations;
  if (first === undefined || run.signal.aborted) return NO_VERDICTS;
  const { timeout_seconds } = engine.config.tool_confirmation;
  const before = run.resumed ? await findAnswered(engine, run, first.call) : null;
  if (before !== null) return readBillAnswer(before.rows, before.answer, timeout_seconds);
  const rows: BillRow[] = [];
  for (const { call, entry } of delegations) {
    const row = await engine.workers.price(run, call, entry);
    if (row !== null) rows.push(row);
  }
  if (rows.length === 0) return NO_VERDICTS;
  const bill = addUpBill(rows);
  if (!isAboveLimits(bill, run.session)) {
    await engine.journal.commit({
      emit: [
        draft({
          type: 'delegate.priced',
          session_id: run.session.id,
          turn_id: run.turn.id,
          parent: run.call_event_id,
          payload: { ...bill, answer: null },
        }),
      ],
    });
    return NO_VERDICTS;
  }
  const asked = delegations.find(({ call }) => call.id === rows[0]!.tool_use_id)!.call;
  const recheck = (input: Readonly<Record<string, unknown>>) => checkEdit(engine, run, rows, input);
  const answer = await confirmBill(engine, run, asked, { bill, recheck });
  if (answer === null) return null;
  return readBillAnswer(rows, answer, timeout_seconds);
}

/** The bill of this message that was answered before a restart. */
async function findAnswered({ store }: ToolCallEngine, run: TurnRun, call: ToolUseBlock) {
  const priced = await store.events.listOfTurn(run.turn.id, ['delegate.priced']);
  const bills = priced.map(({ payload }) => payload as PayloadOf<'delegate.priced'>);
  return bills.find(({ tool_use_ids }) => tool_use_ids.includes(call.id)) ?? null;
}

async function checkEdit(
  engine: ToolCallEngine,
  run: TurnRun,
  rows: readonly BillRow[],
  input: Readonly<Record<string, unknown>>,
): Promise<readonly Issue[]> {
  const parsed = BillEditSchema.safeParse(input);
  if (!parsed.success)
    return describeIssues(parsed.error).map(({ path, message }) => ({ path: path.join('.'), message }));
  const { tier = null, effort = null, first } = parsed.data;
  if (first !== undefined && first > rows.length)
    return [{ path: 'first', message: `must be at most ${rows.length}, the number of delegations` }];
  if (tier === null && effort === null) return [];
  return engine.workers.checkTerms(run, rows, { tier, effort });
}

/**
 * The answer; null = the turn was stopped before there was one.
 * @param recheck of the change that an answer requests for all delegations
 */
async function confirmBill(
  engine: ToolCallEngine,
  run: TurnRun,
  call: ToolUseBlock,
  about: {
    readonly bill: DelegationBill;
    readonly recheck: (input: Readonly<Record<string, unknown>>) => Promise<readonly Issue[]>;
  },
): Promise<BillAnswer | null> {
  const row = describeBill(engine, run, call, about.bill);
  const mode = run.session.approval_mode;
  if (mode !== 'interactive') {
    const decision = mode === 'approve_all' ? 'approve' : 'reject';
    const reason = decision === 'reject' ? 'strict mode: not pre-approved' : null;
    await answerByPolicy(engine, run, row, { decision, reason });
    return { decision, reason, modified_input: null };
  }
  return toBillAnswer(await requestAnswer(engine, run, row, about.recheck));
}
