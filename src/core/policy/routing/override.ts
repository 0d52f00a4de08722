// `@alias` at the start of a message, or the request's own field: a model for this one turn (03 §4.1).
import type { ContentBlock } from '#protocol/message.ts';
import { err, ok, type Result } from '#protocol/result.ts';
import { findModel } from '../registry/find-model.ts';
import type { ModelRegistry } from '../registry/model-registry.ts';

export interface Override {
  /** A model reference; null = none requested. */
  readonly override: string | null;
  /** The stored message: without the prefix or the escaping backslash. */
  readonly content: ContentBlock[];
}
export interface OverrideFault {
  readonly code: 'unknown_alias' | 'override_missing_body';
  readonly message: string;
}

const PREFIX = /^@(\S+)(?:\s+([\s\S]*))?$/;

/**
 * Reads the override of a submitted message. The field wins over a prefix; a prefix counts only in a first text block.
 * Never called for a worker's own message.
 * @param field `per_message_override` of the request, id or alias, with an effort or without
 */
export function parseOverride(input: {
  readonly content: ContentBlock[];
  readonly field: string | null;
  readonly registry: ModelRegistry;
}): Result<Override, OverrideFault> {
  const { content, field, registry } = input;
  const first = content[0];
  const text = first?.type === 'text' ? first.text : '';
  const prefix = PREFIX.exec(text);
  const found = prefix ? findModel(registry, prefix[1]!) : null;
  const named = found?.ok ? found.value : null;
  const body = prefix?.[2] ?? '';

  if (field !== null) {
    const override = findModel(registry, field);
    if (!override.ok) return err({ code: 'unknown_alias', message: `per_message_override: ${override.error}` });
    if (named === null || body === '') return ok({ override: override.value, content });
    return ok({ override: override.value, content: withText(content, body) });
  }
  if (text.startsWith('\\@')) return ok({ override: null, content: withText(content, text.slice(1)) });
  if (!prefix) return ok({ override: null, content });
  if (body === '') {
    return err({
      code: 'override_missing_body',
      message: `content: "@${prefix[1]}" needs a message after it; write "\\@" for a literal @`,
    });
  }
  if (found !== null && !found.ok) {
    return err({
      code: 'unknown_alias',
      message: `content: "@${prefix[1]}": ${found.error} Write "\\@" for a literal @`,
    });
  }
  return ok({ override: named, content: withText(content, body) });
}

function withText(content: readonly ContentBlock[], text: string): ContentBlock[] {
  return [{ type: 'text', text }, ...content.slice(1)];
}
