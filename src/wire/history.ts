// What every wire does to a history before it speaks its own dialect: pairing of calls and results, system text, dropped blocks (11.4).
import type { ContentBlock, StoredMessage } from '../domain/message.ts';
import { textOf } from '../domain/message.ts';
import { type ModelEntry, providerOf } from '../domain/model.ts';
import type { CanonicalRequest } from '../domain/model-request.ts';
import type { ToolUseId } from '../kernel/ids.ts';
import type { Remarks } from './remarks.ts';

/** What a call gets that has no result, so that no provider refuses the history. */
export const INTERRUPTED = 'Tool call was interrupted before it produced a result.';

/** One step of a history that every provider accepts: each call is followed by its result at once. */
export type Step =
  | { readonly kind: 'user' | 'assistant' | 'result'; readonly message: StoredMessage }
  | { readonly kind: 'interrupted'; readonly tool_use_id: ToolUseId };

/** Orders results right behind their calls; what has no call is dropped. SYSTEM messages are left out, see `systemTexts`. */
export function steps(messages: readonly StoredMessage[], drop: Drop): Step[] {
  const out: Step[] = [];
  let open: ToolUseId[] = [];
  const settle = () => {
    for (const tool_use_id of open) out.push({ kind: 'interrupted', tool_use_id });
    open = [];
  };
  for (const message of messages) {
    const { role, content } = message;
    if (role === 'system') continue;
    if (role === 'tool') {
      const result = content[0];
      const place = result?.type === 'tool_result' ? open.indexOf(result.tool_use_id) : -1;
      if (place < 0) drop(message, 'tool_result', 'no call before it waits for this result');
      else {
        open.splice(place, 1);
        out.push({ kind: 'result', message });
      }
      continue;
    }
    settle();
    out.push({ kind: role, message });
    if (role === 'assistant') for (const block of content) if (block.type === 'tool_use') open.push(block.id);
  }
  settle();
  return out;
}

/** Logs a block that cannot be said to the provider. */
export type Drop = (message: StoredMessage, blockType: string, reason: string) => void;

export function dropper(remarks: Remarks): Drop {
  return (message, block_type, reason) =>
    remarks.warn(
      { session_id: message.session_id, message_id: message.id, block_type, reason },
      'canonical.block_dropped',
    );
}

/** Stable and volatile system text; null = none. */
export function systemTexts(request: CanonicalRequest): {
  readonly stable: string | null;
  readonly volatile: string | null;
} {
  const inline = request.messages.filter((m) => m.role === 'system').map((m) => textOf(m.content));
  const demand =
    request.output_schema === null || request.model.capabilities.supports_structured_output
      ? null
      : `## Output\nYour last message must be one JSON object that is valid against this JSON Schema, with no text before or after it:\n${JSON.stringify(request.output_schema)}`;
  return {
    stable: joined([request.system_prompt, ...inline]),
    volatile: joined([request.system_prompt_volatile, demand]),
  };
}

/** Texts separated by a blank line, blank ones left out; null when nothing remains. */
export function joined(texts: readonly (string | null)[]): string | null {
  const present = texts.filter((t): t is string => t !== null && !isBlank(t));
  return present.length === 0 ? null : present.join('\n\n');
}

/** A called tool's name as every provider takes it: a made-up one cannot always be said back as it came. */
export function callName(name: string): string {
  return name.replaceAll(/[^a-zA-Z0-9_-]/g, '_').slice(0, 64);
}

export function isBlank(text: string): boolean {
  return text.trim() === '';
}

/** Why a model cannot be sent this block; null when it can. */
export function refusal(block: ContentBlock, message: StoredMessage, model: ModelEntry): string | null {
  const { capabilities } = model;
  switch (block.type) {
    case 'image': {
      const accepted = capabilities.accepted_image_media_types;
      if (!capabilities.supports_images) return 'the model takes no images';
      return accepted.length === 0 || accepted.includes(block.media_type)
        ? null
        : `the model takes no ${block.media_type}`;
    }
    case 'document':
      return capabilities.accepted_document_media_types.includes(block.media_type)
        ? null
        : `the model takes no ${block.media_type}`;
    case 'thinking':
    case 'redacted_thinking':
      if (message.metadata.provider !== providerOf(model.id)) return 'written by another provider';
      return block.type === 'thinking' && !block.signature ? 'without signature' : null;
    default:
      return null;
  }
}

/**
 * Remembers what `encode` made of a message for a model: stored messages never change, so a long history is mapped once.
 * Dropped blocks are logged when the message is first encoded.
 */
export function encodedOnce<T>(
  encode: (message: StoredMessage, model: ModelEntry) => T,
): (message: StoredMessage, model: ModelEntry) => T {
  const byModel = new WeakMap<ModelEntry, WeakMap<StoredMessage, { readonly value: T }>>();
  return (message, model) => {
    let known = byModel.get(model);
    if (known === undefined) {
      known = new WeakMap();
      byModel.set(model, known);
    }
    let entry = known.get(message);
    if (entry === undefined) {
      entry = { value: encode(message, model) };
      known.set(message, entry);
    }
    return entry.value;
  };
}
