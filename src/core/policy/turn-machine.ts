// Decides a turn's next step from its stored state: one function for the live loop and for recovery (00 §3).
import { joinText, type StopReason, type StoredMessage, type ToolUseBlock, toolUses } from '#protocol/message.ts';
import type { TurnStopReason } from '#protocol/turn.ts';

export interface TurnState {
  /** The newest message of the turn that a provider would be sent. */
  readonly last: Pick<StoredMessage, 'role' | 'content'>;
  /** How the newest model call stopped; null before the first. */
  readonly stopReason: StopReason | null;
  readonly llmCalls: number;
  readonly maxLlmCalls: number;
  /** Remainder of a worker's output token budget; null = no budget. */
  readonly outputTokensLeft: number | null;
  /** Number of final answers that stopped for a tool and name none: the provider has paused (22 §4). */
  readonly pauses: number;
  /** A worker asked its planner for more context (04 §8). */
  readonly contextRequested: boolean;
  /** The message that asks for the last answer is in the history (20 §3). */
  readonly concluded: boolean;
}

/** Maximum continuations of a paused answer. */
const MAX_PAUSES = 5;

/** @param history messages of the turn's session, the newest last */
export function countPauses(history: readonly Pick<StoredMessage, 'role' | 'content' | 'turn_id'>[]): number {
  const last = history.at(-1);
  const other = history.findLastIndex(
    ({ role, content, turn_id }) => role !== 'assistant' || turn_id !== last?.turn_id || toolUses(content).length > 0,
  );
  return history.length - 1 - other;
}

/** Why a turn stopped although its model wanted to go on. */
export type LimitReached = 'llm_calls' | 'output_tokens' | 'context_requested' | 'concluded';

/** The text that the last request of a concluded turn ends with (20 §3). */
export const CONCLUSION_TEXT = '[Stop here: answer now with what you have.]';

export type Step =
  | { readonly kind: 'call_model' }
  | { readonly kind: 'run_tools'; readonly calls: readonly ToolUseBlock[] }
  | { readonly kind: 'fail'; readonly message: string }
  | { readonly kind: 'finish'; readonly stopReason: TurnStopReason; readonly limit: LimitReached | null };

/** The next step of an open turn (04 §3.1, 01 §8). */
export function findNextStep(state: TurnState): Step {
  if (state.contextRequested) return { kind: 'finish', stopReason: 'tool_use', limit: 'context_requested' };
  const { last, stopReason } = state;
  const calls = last.role === 'assistant' ? toolUses(last.content) : [];
  if (state.concluded && last.role === 'assistant')
    return { kind: 'finish', stopReason: concludedReason(last, stopReason), limit: 'concluded' };
  const isPaused = stopReason === 'tool_use' && last.role === 'assistant' && calls.length === 0;
  if (isPaused && state.pauses > MAX_PAUSES)
    return { kind: 'fail', message: `the provider paused its answer ${state.pauses} times without finishing it` };
  if (last.role !== 'assistant' || isPaused) {
    if (state.llmCalls >= state.maxLlmCalls) return { kind: 'finish', stopReason: 'tool_use', limit: 'llm_calls' };
    if (state.outputTokensLeft !== null && state.outputTokensLeft <= 0)
      return { kind: 'finish', stopReason: 'tool_use', limit: 'output_tokens' };
    return { kind: 'call_model' };
  }
  if (stopReason === 'tool_use') return { kind: 'run_tools', calls };
  return { kind: 'finish', stopReason: finalReason(stopReason), limit: null };
}

/** How an answer ends its turn by itself; null when its tool calls come first, or a request for context does. */
export function findEndReason(
  answer: Pick<TurnState, 'last' | 'stopReason' | 'contextRequested'>,
): TurnStopReason | null {
  if (answer.contextRequested || toolUses(answer.last.content).length > 0) return null;
  if (answer.stopReason === 'tool_use') return null;
  return finalReason(answer.stopReason);
}

/** The answer of a concluded turn counts, even where its model called a tool that it could not have. */
function concludedReason({ content }: TurnState['last'], reason: StopReason | null): TurnStopReason {
  if (toolUses(content).length > 0 && joinText(content).trim() === '') return 'tool_use';
  return finalReason(reason);
}

function finalReason(reason: StopReason | null): TurnStopReason {
  if (reason === 'max_tokens' || reason === 'stop_sequence') return reason;
  return 'end_turn';
}
