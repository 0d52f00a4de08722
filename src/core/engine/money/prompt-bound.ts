// Input tokens that a call is billed at most: what is known of its prompt, and a bound of what is new (14 §2).

import { isAnsweredByOther } from '#core/policy/pricing/price-call.ts';
import { type KnownPrompt, type NewText, newText, type Prompt, tokenBound } from '#core/policy/pricing/prompt.ts';
import { overheadTokens } from '#core/policy/registry/adapter-config.ts';
import type { SessionId } from '#protocol/ids.ts';
import type { ModelEntry } from '#protocol/model.ts';
import { promptTokens, type TokenUsage } from '#protocol/usage.ts';
import type { Engine } from '../state/engine.ts';
import { lookUpPrompt, type PromptTrace, rememberPrompt } from '../state/known-prompts.ts';

export interface BoundPrompt {
  readonly tokens: number;
  readonly trace: PromptTrace;
}

/** Below it a count saves less than it costs. */
const MIN_COUNTED_BYTES = 1024;
/** Around each text and each part: roles, names, separators. */
const TEXT_FRAME_TOKENS = 4;
const PART_FRAME_TOKENS = 16;

/** Never rejects for a prompt that was parsed. */
export async function boundPrompt(
  engine: Engine,
  session: SessionId,
  model: ModelEntry,
  prompt: Prompt,
): Promise<BoundPrompt> {
  const { known, trace } = lookUpPrompt(engine.prompts, session, model.id, prompt);
  const adapter = engine.registry.adapters.get(model.adapter);
  const overhead = adapter === undefined ? 0 : overheadTokens(adapter);
  const bound = (text: NewText) => tokenBound(text, model.capabilities, overhead);
  const candidates = [null, ...known].map((given: KnownPrompt | null) => newText(prompt, given));
  const best = candidates.reduce((least, text) => (bound(text) < bound(least) ? text : least));
  return { tokens: bound(await counted(engine, model, best)), trace };
}

/** The same with the tokens of its texts in place of their bytes, where the model's tokenizer is known. */
async function counted({ tokenizer }: Engine, model: ModelEntry, text: NewText): Promise<NewText> {
  if (model.tokenizer === null || tokenizer === null || text.unbounded) return text;
  const parts = text.parts.filter((part) => part.texts !== null);
  const bytes = parts.reduce((sum, part) => sum + part.bytes, 0);
  if (bytes < MIN_COUNTED_BYTES) return text;
  const texts = parts.flatMap((part) => part.texts!());
  const tokens = await tokenizer.count(model.tokenizer, texts);
  if (tokens === null) return text;
  const framed = tokens + texts.length * TEXT_FRAME_TOKENS + parts.length * PART_FRAME_TOKENS;
  return { ...text, bytes: text.bytes - bytes + Math.min(bytes, framed) };
}

/**
 * Keeps what the provider reported of a prompt. Another model that answered counts with another tokenizer.
 * @param served the model that answered; null = the one asked
 */
export function learnPrompt(
  engine: Engine,
  bound: BoundPrompt,
  call: { readonly model: ModelEntry; readonly usage: TokenUsage; readonly served: string | null },
): void {
  if (call.usage.usage_estimated || isAnsweredByOther(engine.prices, call.model, call.served)) return;
  const tokens = promptTokens(call.usage);
  if (tokens > 0) rememberPrompt(engine.prompts, bound.trace, tokens);
}
