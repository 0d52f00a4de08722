// `@alias` and the request's field (03 §4.1, Acceptance 2).
import { describe, expect, it } from 'vitest';
import { parseOverride } from '#core/policy/routing/override.ts';
import type { ContentBlock } from '#protocol/message.ts';
import { HAIKU, OPUS, registryOf } from './world.ts';

const registry = registryOf();
const image: ContentBlock = { type: 'image', source: { kind: 'base64', data: 'AA==' }, media_type: 'image/png' };

function parse(text: string, field: string | null = null) {
  const parsed = parseOverride({ content: [{ type: 'text', text }], field, registry });
  if (!parsed.ok) return parsed.error.code;
  const block = parsed.value.content[0];
  return [parsed.value.override, block?.type === 'text' ? block.text : null];
}

describe('a prefix', () => {
  // Promise 03.1: an override prefix is cut off before the text is stored.
  it.each([
    ['@haiku hi', HAIKU, 'hi'],
    [`@${OPUS} hi`, OPUS, 'hi'],
    ['@haiku \n\t hi  there \n', HAIKU, 'hi  there \n'],
    ['@haiku @opus hi', HAIKU, '@opus hi'],
    ['@Haiku hi', HAIKU, 'hi'],
    ['\\@haiku hi', null, '@haiku hi'],
    ['\\@', null, '@'],
    ['mail @haiku now', null, 'mail @haiku now'],
    [' @haiku hi', null, ' @haiku hi'],
    ['@', null, '@'],
    ['@ haiku', null, '@ haiku'],
    ['@\nhaiku', null, '@\nhaiku'],
    ['', null, ''],
  ])('%j selects the model %s and stores %j', (text, override, stored) => {
    expect(parse(text)).toEqual([override, stored]);
  });

  it.each([
    ['@nope hi', 'unknown_alias'],
    ['@haiku', 'override_missing_body'],
    ['@nope', 'override_missing_body'],
    ['@haiku  \n ', 'override_missing_body'],
  ])('%j is refused with %s', (text, code) => {
    expect(parse(text)).toBe(code);
  });

  it('counts only in a first block that is text, and leaves the other blocks as they are', () => {
    const behind: ContentBlock[] = [image, { type: 'text', text: '@haiku hi' }];
    expect(parseOverride({ content: behind, field: null, registry })).toEqual({
      ok: true,
      value: { override: null, content: behind },
    });
    const before: ContentBlock[] = [{ type: 'text', text: '@haiku see' }, image];
    expect(parseOverride({ content: before, field: null, registry })).toEqual({
      ok: true,
      value: { override: HAIKU, content: [{ type: 'text', text: 'see' }, image] },
    });
  });

  it('says in the message what was not understood and how to write it literally', () => {
    const refused = parseOverride({ content: [{ type: 'text', text: '@nope hi' }], field: null, registry });
    expect(!refused.ok && refused.error.message).toMatch(/"@nope".*\\@/);
  });
});

describe('the request field', () => {
  it.each([
    ['plain', 'haiku', HAIKU, 'plain'],
    ['@opus hi', 'haiku', HAIKU, 'hi'],
    ['@nope hi', HAIKU, HAIKU, '@nope hi'],
    ['@opus', 'haiku', HAIKU, '@opus'],
    ['\\@opus hi', 'haiku', HAIKU, '\\@opus hi'],
  ])('beats the prefix of %j', (text, field, override, stored) => {
    expect(parse(text, field)).toEqual([override, stored]);
  });

  it('is refused when it names no model', () => {
    expect(parse('@haiku hi', 'nope')).toBe('unknown_alias');
  });
});
