// Whatever a model says, the session stays usable: the request after it keeps every rule of its wire (11.4).
import fs from 'node:fs';
import path from 'node:path';
import { describe, expect, test } from 'vitest';
import { tempFolder } from '../support/engine.ts';
import type { FakeMessage } from '../support/fake-provider.ts';
import { startReal, startStrictFake } from '../support/real-server.ts';
import { registryAt, WIRES, type Wire } from '../support/registry-at.ts';

const MODEL = { anthropic: 'opus', openai: 'gpt' } as const;
const read = { name: 'read_file', input: { path: 'a.txt' } };

const CASES: readonly [string, (wire: Wire) => FakeMessage][] = [
  ['nothing at all', () => ({})],
  ['blanks only', () => ({ text: ' \n ' })],
  [
    'a call that the token limit cut in its arguments',
    () => ({ text: 'writing', tool_calls: [{ name: 'write_file', json: '{"path": "b' }], stop_reason: 'max_tokens' }),
  ],
  ['a whole call cut off by the token limit', () => ({ tool_calls: [read], stop_reason: 'max_tokens' })],
  ['a call, and then the connection breaks', () => ({ text: 'well', tool_calls: [read], after: 6, ending: 'reset' })],
  ['the same call twice', () => ({ tool_calls: [read, read] })],
  [
    'a call of a tool whose name no provider takes',
    () => ({ tool_calls: [{ name: 'functions.read file!', input: {} }] }),
  ],
  ['a call of a tool with an endless name', () => ({ tool_calls: [{ name: 'x'.repeat(500), input: {} }] })],
  [
    'half a surrogate pair, in text and in arguments',
    () => ({ text: 'so \ud83d', tool_calls: [{ name: 'grep', input: { pattern: '\udc00 \\ud83d' } }], delta: 1000 }),
  ],
  ['a call without any argument', () => ({ tool_calls: [{ name: 'list_files', json: '' }] })],
  ['arguments that are a list', () => ({ tool_calls: [{ name: 'list_files', json: '[1]' }] })],
];

describe.each(WIRES)('after an answer on the %s wire that is', (wire) => {
  test.each(CASES)('%s', async (_, first) => {
    const folder = tempFolder();
    const workspace = path.join(folder, 'workspace');
    fs.mkdirSync(workspace);
    fs.writeFileSync(path.join(workspace, 'a.txt'), 'alpha\n');
    const fake = await startStrictFake((call) => (call.number === 1 ? first(wire) : { text: `said ${call.user}` }));
    const server = await startReal({ folder: path.join(folder, 'data'), registry: registryAt(fake) });
    const session = await server.session(workspace, MODEL[wire]);
    const one = await server.turn(session, 'one');
    expect(one.error_message ?? '').not.toContain('; ');
    expect(one.error_class).not.toBe('invalid_request');
    expect(await server.turn(session, 'two')).toMatchObject({ status: 'completed', output: 'said two' });
  });
});
