// `@alias` at the start of a message, or the request's own field: a model for this one turn (03 §4.1).
import type { ContentBlock } from '#protocol/message.ts';
import { err, ok, type Result } from '#protocol/result.ts';
import { type ModelRegistry, unknownModel } from '../registry/model-registry.ts';

export interface Override {
  /** Canonical id; null = none asked for. */
  readonly override: string | null;
  /** What is stored: the message without the prefix or the escaping backslash. */
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
 * @param field `per_message_override` of the request, id or alias
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
  const named = prefix ? registry.resolveAlias(prefix[1]!) : null;
  const body = prefix?.[2] ?? '';

  if (field !== null) {
    const override = registry.resolveAlias(field);
    if (override === null) {
      return err({ code: 'unknown_alias', message: `per_message_override: ${unknownModel(field)}` });
    }
    return ok({ override, content: named !== null && body !== '' ? withText(content, body) : content });
  }
  if (text.startsWith('\\@')) return ok({ override: null, content: withText(content, text.slice(1)) });
  if (!prefix) return ok({ override: null, content });
  if (body === '') {
    return err({
      code: 'override_missing_body',
      message: `content: "@${prefix[1]}" needs a message after it; write "\\@" for a literal @`,
    });
  }
  if (named === null) {
    return err({
      code: 'unknown_alias',
      message: `content: "@${prefix[1]}": ${unknownModel(prefix[1]!)}; write "\\@" for a literal @`,
    });
  }
  return ok({ override: named, content: withText(content, body) });
}

function withText(content: readonly ContentBlock[], text: string): ContentBlock[] {
  return [{ type: 'text', text }, ...content.slice(1)];
}
