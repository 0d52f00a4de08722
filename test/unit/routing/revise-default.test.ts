// The default model written into the text of a routing file: nothing else of it changes (03 §6.5).
import { describe, expect, test } from 'vitest';
import { reviseDefault } from '#core/policy/routing/revise-default.ts';

const HAIKU = 'anthropic:claude-haiku-4-5';
const revise = (before: string, model = HAIKU) => {
  const revised = reviseDefault(before, model);
  return revised.ok ? revised.value : `refused: ${revised.error}`;
};

// Promise 03.27: comments and every other byte of the file stay.
describe('the default of a routing file', () => {
  test.each([
    ['no file', '', `default: ${HAIKU}\n`],
    ['comments alone', '# mine\n', `# mine\ndefault: ${HAIKU}\n`],
    ['no line break at the end', 'rules: []', `rules: []\ndefault: ${HAIKU}\n`],
    [
      'a value with its comment',
      'default:   opus   # why\n\n\nrules:   []\n',
      `default:   ${HAIKU}   # why\n\n\nrules:   []\n`,
    ],
    ['a quoted value', "rules: []\ndefault: 'opus'\n# end", `rules: []\ndefault: ${HAIKU}\n# end`],
    ['an empty value', 'default:\nrules: []\n', `default: ${HAIKU}\nrules: []\n`],
    ['Windows line breaks', 'rules: []\r\n', `rules: []\r\ndefault: ${HAIKU}\r\n`],
    ['a flow mapping that has one', '{ default: opus, rules: [] }', `{ default: ${HAIKU}, rules: [] }`],
    ['rules at the end', 'rules:\n  - when: { has_images: true }\n    use: opus\n', undefined],
  ])('is written beside %s', (_, before, after) => {
    expect(revise(before)).toBe(after ?? `${before}default: ${HAIKU}\n`);
  });

  test('is quoted where it needs to be', () => {
    expect(revise('', 'a: b #c')).toBe('default: "a: b #c"\n');
    expect(revise('default: x\n', 'true ')).toBe('default: "true "\n');
  });

  // What cannot be changed in place is not guessed at.
  test.each([
    ['an anchor', 'default: &m opus\ntiers: { fast: *m, balanced: *m, deep: *m }\n'],
    ['an alias', 'tiers: { fast: &m opus, balanced: *m, deep: *m }\ndefault: *m\n'],
    ['a flow mapping without one', '{ rules: [] }'],
    ['an indented file', '  rules: []\n'],
    ['the end of a document', 'rules: []\n...\n'],
    ['a list', '- a\n'],
    ['more than a file of a person', `# ${'x'.repeat(70_000)}\n`],
    [
      'text that holds on to its line breaks',
      'rules:\n  - { use: opus, when: { message_matches: a } }\nname: |+\n  a\n\n',
    ],
  ])('is refused in %s, or changes nothing else', (_, before) => {
    const after = revise(before);
    if (!after.startsWith('refused:')) expect(after).toBe(`${before}default: ${HAIKU}\n`);
    else expect(after).toMatch(/^refused: has (a form that is not changed in place|more than 65536 characters)$/);
  });
});
