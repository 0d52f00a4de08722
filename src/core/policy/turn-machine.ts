// What a turn does next, from what is stored of it: the one fold that drives the live loop and recovery (00 §3).
import { type StopReason, type StoredMessage, type ToolUseBlock, toolUses } from '#protocol/message.ts';
import type { TurnStopReason } from '#protocol/turn.ts';

export interface TurnState {
  /** The newest message of the turn that a provider would be sent. */
  readonly last: Pick<StoredMessage, 'role' | 'content'>;
  /** How the newest model call stopped; null before the first. */
  readonly stopReason: StopReason | null;
  readonly llmCalls: number;
  readonly maxLlmCalls: number;
  /** What is left of a worker's output token budget; null = no budget. */
  readonly outputTokensLeft: number | null;
  /** A worker asked its planner for more context (04 §8). */
  readonly contextRequested: boolean;
}

/** Why a turn stopped although its model wanted to go on. */
export type LimitReached = 'llm_calls' | 'output_tokens' | 'context_requested';

export type Step =
  | { readonly kind: 'call_model' }
  | { readonly kind: 'run_tools'; readonly calls: readonly ToolUseBlock[] }
  | { readonly kind: 'finish'; readonly stopReason: TurnStopReason; readonly limit: LimitReached | null };

/** The next step of an open turn (04 §3.1, 01 §8). */
export function next(state: TurnState): Step {
  if (state.contextRequested) return { kind: 'finish', stopReason: 'tool_use', limit: 'context_requested' };
  if (state.last.role !== 'assistant') {
    if (state.llmCalls >= state.maxLlmCalls) return { kind: 'finish', stopReason: 'tool_use', limit: 'llm_calls' };
    if (state.outputTokensLeft !== null && state.outputTokensLeft <= 0)
      return { kind: 'finish', stopReason: 'tool_use', limit: 'output_tokens' };
    return { kind: 'call_model' };
  }
  const calls = toolUses(state.last.content);
  if (state.stopReason === 'tool_use' && calls.length > 0) return { kind: 'run_tools', calls };
  return { kind: 'finish', stopReason: finalReason(state.stopReason), limit: null };
}

/** How an answer ends its turn by itself; null when its tool calls come first, or a request for context does. */
export function endedBy(answer: Pick<TurnState, 'last' | 'stopReason' | 'contextRequested'>): TurnStopReason | null {
  if (answer.contextRequested || toolUses(answer.last.content).length > 0) return null;
  return finalReason(answer.stopReason);
}

/** A `tool_use` stop without a block ends like any other answer. */
function finalReason(reason: StopReason | null): TurnStopReason {
  return reason === 'max_tokens' || reason === 'stop_sequence' ? reason : 'end_turn';
}
