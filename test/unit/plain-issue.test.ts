// What a person reads when a value does not fit a schema.
import { expect, test } from 'vitest';
import { z } from 'zod';
import { describeIssues } from '#core/policy/parsing/plain-issue.ts';

const Block = z.discriminatedUnion('type', [
  z.strictObject({ type: z.literal('text'), text: z.string().min(1).max(5) }),
  z.strictObject({ type: z.literal('pair'), items: z.array(z.int().min(1).max(9)).min(2).max(2) }),
]);
const Form = z.strictObject({
  content: z.union([z.string(), z.array(Block)]),
  mode: z.enum(['pause', 'stop']).optional(),
  letter: z.enum([...'abcdefghijklmno']).optional(),
  on: z.boolean().nullable().optional(),
  share: z.number().gt(0).lt(1).optional(),
  names: z.record(z.string().regex(/^[a-z]+$/, 'must be lower case'), z.string()).optional(),
  own: z.string({ error: 'must be a decimal string' }).optional(),
});

function lines(value: unknown): string[] {
  const { error } = Form.safeParse(value);
  return error === undefined ? [] : describeIssues(error).map((i) => `${i.path.join('.')}: ${i.message}`);
}

test.each<[string, unknown, string[]]>([
  ['a missing value', {}, ['content: is required']],
  ['something else than an object', [], [': must be an object']],
  ['a union none of whose types fits', { content: 5 }, ['content: must be a string or a list']],
  ['a fault inside the branch that was meant', { content: [{ type: 'text' }] }, ['content.0.text: is required']],
  ['an unknown variant', { content: [{ type: 'x' }] }, ['content.0.type: must be one of "text", "pair"']],
  [
    'a text too long',
    { content: [{ type: 'text', text: '123456' }] },
    ['content.0.text: must have at most 5 characters'],
  ],
  ['an empty text', { content: [{ type: 'text', text: '' }] }, ['content.0.text: must not be empty']],
  ['a list too short', { content: [{ type: 'pair', items: [1] }] }, ['content.0.items: must have at least 2 items']],
  ['a fraction', { content: [{ type: 'pair', items: [1, 1.5] }] }, ['content.0.items.1: must be an integer']],
  [
    'numbers out of range',
    { content: [{ type: 'pair', items: [0, 10] }] },
    ['content.0.items.0: must be at least 1', 'content.0.items.1: must be at most 9'],
  ],
  ['a choice', { content: '', mode: 'x' }, ['mode: must be one of "pause", "stop"']],
  [
    'a long choice',
    { content: '', letter: 'x' },
    [`letter: must be one of ${[...'abcdefghijkl'].map((l) => `"${l}"`).join(', ')}, … (15 in all)`],
  ],
  ['a flag', { content: '', on: 'yes' }, ['on: must be true or false']],
  ['an open interval', { content: '', share: 1 }, ['share: must be less than 1']],
  ['unknown keys, each by its name', { content: '', a: 1, b: 2 }, ['a: unknown key', 'b: unknown key']],
  ['unknown keys without a letter', { content: '', '': 1, ' ': 2 }, [': unknown key ""', ' : unknown key " "']],
  ["a map's key", { content: '', names: { A: 'x' } }, ['names.A: must be lower case']],
  ['a text the schema brings itself', { content: '', own: 1 }, ['own: must be a decimal string']],
])('%s is told at its place and in plain words', (_what, value, expected) => {
  expect(lines(value).toSorted()).toEqual(expected.toSorted());
});
