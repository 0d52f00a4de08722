// The tool step: runs all calls of one message at once, their results in block order (09 §4, §9.1, 04 §8).
import { InsufficientContextRequestSchema } from '#protocol/delegate.ts';
import { draft } from '#protocol/event.ts';
import type { ToolResultBlock, ToolUseBlock } from '#protocol/message.ts';
import { openApplyGroup } from '../state/apply-groups.ts';
import { createSlots, Interrupted, type Slots } from '../state/concurrency.ts';
import type { Runtime, Storage, ToolCallEngine } from '../state/engine.ts';
import {
  recordContextRequest,
  recordSettledCalls,
  type ToolResults,
  type TurnBase,
  type TurnPlan,
  type TurnRun,
} from '../state/turn-run.ts';
import { runTool } from './run-tool.ts';
import { CANCELLED_TEXT, errorResult } from './tool-results.ts';

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

  async function settleTool(call: ToolUseBlock, slots: Slots): Promise<void> {
    try {
      const outcome = await runTool(engine, run, call, slots);
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
