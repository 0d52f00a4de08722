// Results of one message's tool calls, and the tool messages made of them in block order (01 §6.2).

import type { Write } from '#core/ports/journal.ts';
import { isoTime } from '#protocol/clock.ts';
import type { ToolUseId, TurnId } from '#protocol/ids.ts';
import { plainMetadata, type StoredMessage, type ToolResultBlock, type ToolUseBlock } from '#protocol/message.ts';
import type { Engine } from '../state/engine.ts';
import type { StartedCall, ToolResults } from '../state/tool-results.ts';
import type { TurnRun } from '../state/turn-run.ts';

export const CANCELLED_TEXT = 'Tool call cancelled.';
export const RESTART_TEXT = 'Tool call interrupted by a server restart; it may or may not have taken effect.';
export const FAILED_TEXT = 'Tool call not executed: the turn failed.';

/** Results of the turn's calls that are stored but not yet answered in its history. */
export async function storedResults(engine: Engine, turnId: TurnId): Promise<ToolResults> {
  const calls = await engine.store.turns.toolCalls(turnId);
  return new Map(calls.flatMap((c) => (c.answered || c.result === null ? [] : [[c.id, c.result] as const])));
}

/** The calls of the turn that had started. */
export async function startedCalls(engine: Engine, turnId: TurnId): Promise<ReadonlyMap<ToolUseId, StartedCall>> {
  const called = new Map<ToolUseId, StartedCall>();
  for (const { id, payload } of await engine.store.events.ofTurn(turnId, ['tool.called']))
    called.set(payload.tool_use_id as ToolUseId, { event_id: id, input_hash: payload.input_hash as string });
  return called;
}

export function errorResult(id: ToolUseId, text: string): ToolResultBlock {
  return { type: 'tool_result', tool_use_id: id, content: [{ type: 'text', text }], is_error: true };
}

/**
 * The tool messages of one assistant message, in block order, with the writes that store them.
 * @param missing the text of a call without a result
 */
export function answerMessages(
  engine: Engine,
  run: Pick<TurnRun, 'session' | 'turn'>,
  calls: readonly ToolUseBlock[],
  { results, missing }: { readonly results: ToolResults; readonly missing: string },
): { readonly messages: readonly StoredMessage[]; readonly writes: readonly Write[] } {
  const messages: StoredMessage[] = [];
  const writes: Write[] = [];
  const at = engine.clock.now();
  for (const call of calls) {
    let result = results.get(call.id);
    if (!result) {
      result = errorResult(call.id, missing);
      writes.push({ kind: 'tool_call.settle', id: call.id, status: 'cancelled', result, at });
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
