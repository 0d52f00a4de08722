// The tool step: all calls of one message at once, their results in block order (09 §4, §9.1, 04 §8).
import { InsufficientContextRequestSchema } from '../domain/delegate.ts';
import { draft } from '../domain/event.ts';
import { plainMetadata, type StoredMessage, type ToolResultBlock, type ToolUseBlock } from '../domain/message.ts';
import { REQUEST_CONTEXT, type ToolCallStatus } from '../domain/tool.ts';
import { isoTime } from '../kernel/clock.ts';
import type { ToolUseId } from '../kernel/ids.ts';
import type { Write } from '../ports/journal.ts';
import { appended } from './call-model.ts';
import type { Engine } from './context.ts';
import { runTool, type ToolOutcome } from './run-tool.ts';
import { createSlots, type Slots } from './slots.ts';
import type { TurnRun } from './turn-run.ts';

/** Results by call; a call without one did not finish. */
export type ToolResults = ReadonlyMap<ToolUseId, ToolResultBlock>;

export const CANCELLED_TEXT = 'Tool call cancelled.';
export const RESTART_TEXT = 'Tool call interrupted by a server restart; it may or may not have taken effect.';
export const FAILED_TEXT = 'Tool call not executed: the turn failed.';

/**
 * Runs every call that has no result yet. Resolves when the last one has settled; each is stored as it settles.
 * Tool failures are results, never exceptions; only the journal's own faults throw.
 * @param known results from before a restart
 */
export async function dispatchTools(
  engine: Engine,
  run: TurnRun,
  calls: readonly ToolUseBlock[],
  inputErrors: ReadonlyMap<ToolUseId, string>,
  known: ToolResults = new Map(),
): Promise<ToolResults> {
  const results = new Map(known);
  const slots = createSlots(engine.config.tools.max_concurrent_per_session);
  let waiting = calls.filter((c) => !results.has(c.id));

  const question = waiting.find((c) => c.name === REQUEST_CONTEXT);
  if (question && run.worker) {
    const outcome = await settled(engine, run, question, inputErrors, slots);
    results.set(question.id, outcome.result);
    const asked = InsufficientContextRequestSchema.safeParse(question.input);
    waiting = waiting.filter((c) => c !== question);
    if (outcome.status === 'succeeded' && asked.success) {
      run.context_request = asked.data;
      for (const sibling of waiting) results.set(sibling.id, await refuse(engine, run, sibling));
      return results;
    }
  }
  await Promise.all(
    waiting.map(async (call) => {
      const outcome = await settled(engine, run, call, inputErrors, slots);
      results.set(call.id, outcome.result);
    }),
  );
  return results;
}

async function settled(
  engine: Engine,
  run: TurnRun,
  call: ToolUseBlock,
  inputErrors: ReadonlyMap<ToolUseId, string>,
  slots: Slots,
): Promise<ToolOutcome> {
  const outcome = await runTool(engine, run, call, inputErrors.get(call.id) ?? null, slots);
  run.cause = outcome.event_id;
  run.tally.tool_calls += 1;
  return outcome;
}

/** A sibling of a valid context request: never started. */
async function refuse(engine: Engine, run: TurnRun, call: ToolUseBlock): Promise<ToolResultBlock> {
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
  run.tally.tool_calls += 1;
  return result;
}

export function errorResult(id: ToolUseId, text: string): ToolResultBlock {
  return { type: 'tool_result', tool_use_id: id, content: [{ type: 'text', text }], is_error: true };
}

/** The tool messages of one assistant message, in block order, with the writes that store them. */
export function answerMessages(
  engine: Engine,
  run: Pick<TurnRun, 'session' | 'turn'>,
  calls: readonly ToolUseBlock[],
  results: ToolResults,
  missing: { readonly text: string; readonly status: ToolCallStatus },
): { readonly messages: readonly StoredMessage[]; readonly writes: readonly Write[] } {
  const messages: StoredMessage[] = [];
  const writes: Write[] = [];
  const at = engine.clock.now();
  for (const call of calls) {
    let result = results.get(call.id);
    if (!result) {
      result = errorResult(call.id, missing.text);
      writes.push({ kind: 'tool_call.settle', id: call.id, status: missing.status, result, at });
    }
    const message: StoredMessage = {
      id: engine.ids.message(),
      session_id: run.session.id,
      turn_id: run.turn.id,
      role: 'tool',
      content: [result],
      metadata: plainMetadata(call.id),
      created_at: isoTime(at),
      provider_raw: null,
    };
    messages.push(message);
    writes.push(
      { kind: 'message.insert', message },
      { kind: 'tool_call.answer', id: call.id, result_message_id: message.id },
    );
  }
  return { messages, writes };
}

/** Stores the tool messages of a finished batch in one transaction. */
export async function storeAnswers(
  engine: Engine,
  run: TurnRun,
  calls: readonly ToolUseBlock[],
  results: ToolResults,
): Promise<void> {
  const { messages, writes } = answerMessages(engine, run, calls, results, { text: FAILED_TEXT, status: 'cancelled' });
  await engine.journal.commit({ writes, emit: messages.map((m) => appended(engine, run, m)) });
  run.history.push(...messages);
}
