// Replaces reported token counts that cannot be true (08 §4.1, 11.3 rule 10).
import type { ModelEntry } from '#protocol/model.ts';
import { promptTokens, type ReportedBill, type TokenUsage } from '#protocol/usage.ts';

/** A count may exceed the model's window in the registry by this factor: windows there are rounded, guessed or old. */
const MARGIN = 10;

/** Estimates in tokens for a side that the provider did not report; computed only when needed. */
export interface Estimates {
  input(): number;
  output(): number;
}

/**
 * The usage with each impossible side, prompt or answer, replaced by its estimate.
 * A count is impossible if it is not a whole number from 0, or above ten times the model's input and output limits together
 * for each sampling of the call.
 * @param bill its rounds are the samplings; null = one
 * @returns `faults`: one line for each count that was not believed; empty when the usage is as it was
 */
export function replaceIncredibleCounts(
  usage: TokenUsage,
  capabilities: Pick<ModelEntry['capabilities'], 'max_context_tokens' | 'max_output_tokens'>,
  estimates: Estimates,
  bill: ReportedBill | null,
): { readonly usage: TokenUsage; readonly faults: readonly string[] } {
  const samplings = Math.max(1, bill?.rounds.length ?? 0);
  const most = MARGIN * samplings * (capabilities.max_context_tokens + capabilities.max_output_tokens);
  const faults: string[] = [];
  function isCredible(name: string, count: number): boolean {
    const is = Number.isSafeInteger(count) && count >= 0 && count <= most;
    const what = Number.isNaN(count) ? 'the reported value' : count;
    if (!is) faults.push(`${name}: ${what} is no number of tokens from 0 to ${most}`);
    return is;
  }

  let believed = usage;
  if (
    !isCredible('cached_input_tokens', usage.cached_input_tokens) ||
    !isCredible('cache_creation_input_tokens', usage.cache_creation_input_tokens) ||
    !isCredible('cache_creation_1h_input_tokens', usage.cache_creation_1h_input_tokens) ||
    !isCredible('prompt tokens', promptTokens(usage)) ||
    !isCredible('input_tokens', usage.input_tokens)
  )
    believed = {
      ...believed,
      input_tokens: estimates.input(),
      cached_input_tokens: 0,
      cache_creation_input_tokens: 0,
      cache_creation_1h_input_tokens: 0,
      usage_estimated: true,
    };
  if (!isCredible('output_tokens', usage.output_tokens))
    believed = { ...believed, output_tokens: estimates.output(), usage_estimated: true };
  // Part of the output, so it has no price of its own.
  if (!isCredible('reasoning_tokens', usage.reasoning_tokens)) believed = { ...believed, reasoning_tokens: 0 };
  return { usage: believed, faults };
}
