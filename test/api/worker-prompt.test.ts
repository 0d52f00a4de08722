// What a worker's provider is sent: its task, its form of answer and its images, each of them once (10 §3, §8, 11.4).
import fs from 'node:fs';
import path from 'node:path';
import { describe, expect, test } from 'vitest';
import { tempFolder } from '../support/engine.ts';
import type { FakeCall, FakeToolCall } from '../support/fake-provider.ts';
import type { Parsed } from '../support/http.ts';
import { startReal, startStrictFake } from '../support/real-server.ts';
import { registryAt } from '../support/registry-at.ts';
import { withoutWorkerLine } from '../support/stored.ts';

const PNG = Buffer.from(
  'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg==',
  'base64',
);
const schema = { type: 'object', properties: { tally_of_files: { type: 'integer' } }, required: ['tally_of_files'] };
const task = 'Count the files of this folder.';

/** A planner that delegates once; the worker answers at once. */
async function world(files: Readonly<Record<string, Buffer>>, delegation: object) {
  const folder = tempFolder();
  const workspace = path.join(folder, 'workspace');
  fs.mkdirSync(workspace);
  for (const [name, bytes] of Object.entries(files)) fs.writeFileSync(path.join(workspace, name), bytes);
  const tool_calls: FakeToolCall[] = [{ name: 'delegate', input: { tier: 'fast', task, ...delegation } }];
  const plan = (call: FakeCall) => (call.results.length === 0 ? { tool_calls } : { text: 'end' });
  const isWorker = (call: FakeCall) => call.system.includes('## Worker mode');
  const fake = await startStrictFake((call) => (isWorker(call) ? { text: '{"tally_of_files":1}' } : plan(call)));
  const server = await startReal({ folder: path.join(folder, 'data'), registry: registryAt(fake) });
  return {
    async run(model: string) {
      const session = await server.session(workspace, model);
      expect((await server.turn(session, 'go')).status).toBe('completed');
      return { planner: fake.calls.at(-1)!, worker: fake.calls.filter(isWorker) };
    },
  };
}
const count = (text: string, sought: string) => text.split(sought).length - 1;

describe.each([
  ['anthropic', 'opus'],
  ['openai', 'gpt'],
] as const)('a worker on the %s wire', (_, model) => {
  test('is told its task and its schema once each', async () => {
    const { worker, planner } = await (await world({}, { output_schema: schema })).run(model);
    expect(worker).toHaveLength(1);
    const { system, text } = worker[0]!;
    expect(count(text, task)).toBe(1);
    // In the field that the wire has for it: a property and its requirement.
    expect(count(text, 'tally_of_files')).toBe(2);
    expect(system).not.toContain('tally_of_files');
    expect(planner.results.map(withoutWorkerLine)).toEqual(['{"tally_of_files":1}']);
  });
});

// Promise 10.9: the cache mark of a worker lies between its stable text and its task.
test('a worker on the anthropic wire has its cache mark between what workers share and its task', async () => {
  const { worker } = await (await world({}, {})).run('opus');
  const system = worker[0]!.body.system as Parsed[];
  expect(system.map((part) => [part.text.includes(task), part.cache_control !== undefined])).toEqual([
    [false, true],
    [true, false],
  ]);
});

describe('images that a delegation names', () => {
  const names = (n: number) => Array.from({ length: n }, (_, i) => `i${String(i).padStart(2, '0')}.png`);
  const named = (n: number, bytes = PNG) => Object.fromEntries(names(n).map((name) => [name, bytes]));
  const include = (n: number) => ({ context: { mode: 'explicit', include: names(n).map(file) } });
  const file = (name: string) => ({ type: 'file', path: name });
  const imagesOf = (call: FakeCall) =>
    (call.body.messages as Parsed[])[0].content.filter((part: Parsed) => part.type === 'image').length;

  test('reach the worker, twenty of them', async () => {
    const { worker, planner } = await (await world(named(20), include(20))).run('opus');
    expect(worker.map(imagesOf)).toEqual([20]);
    expect(planner.results.map(withoutWorkerLine)).toEqual(['{"tally_of_files":1}']);
  });

  test.each([
    ['more than 20', 21, PNG, 20, '20 images'],
    ['more than 20 MiB', 5, Buffer.concat([PNG, Buffer.alloc(4.5 * 1024 * 1024)]), 4, '20 MiB of images'],
  ])('of %s are refused by the item with which they are too many, and no worker exists', async (...row) => {
    const [, n, bytes, item, limit] = row;
    const { worker, planner } = await (await world(named(n, bytes), include(n))).run('opus');
    expect(worker).toEqual([]);
    expect(planner.results).toEqual([
      `context.include[${item}]: with this item the worker's first message holds more than ${limit}; leave items out or delegate in parts`,
    ]);
  });
});
