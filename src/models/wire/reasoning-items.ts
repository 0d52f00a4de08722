// Reasoning items of OpenAI Responses, kept with the message and sent back as they came (22 §4).
import type { ProviderRaw } from '#protocol/message.ts';

/** An item with its encrypted content. */
export interface ReasoningItem {
  /** Position of the block of the message that follows the item. */
  readonly at: number;
  readonly item: Readonly<Record<string, unknown>>;
}

const ADAPTER = 'openai-responses';

/** @returns what is stored with the message; null for a message without reasoning */
export function keepReasoning(items: readonly ReasoningItem[]): ProviderRaw | null {
  if (items.length === 0) return null;
  return { adapter: ADAPTER, reasoning: items };
}

/** @param raw of any adapter */
export function readReasoning(raw: ProviderRaw | null): readonly ReasoningItem[] {
  if (raw?.adapter !== ADAPTER) return [];
  return raw.reasoning as readonly ReasoningItem[];
}
