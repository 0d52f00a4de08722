// What a provider's prompt cache sees of a session: the same bytes turn after turn, and where its breakpoints stand (10 §1, §2).
import fs from 'node:fs';
import path from 'node:path';
import { describe, expect, test } from 'vitest';
import { tempFolder } from '../support/engine.ts';
import type { FakeCall } from '../support/fake-provider.ts';
import { startReal, startStrictFake } from '../support/real-server.ts';
import { registryAt } from '../support/registry-at.ts';
import { headBytes, historyBytes, toolBytes } from '../support/request-bytes.ts';

interface Part {
  readonly type?: string;
  readonly text?: string;
  readonly name?: string;
  readonly cache_control?: object;
}

function world(memory: boolean) {
  const folder = tempFolder();
  const workspace = path.join(folder, 'workspace');
  fs.mkdirSync(path.join(workspace, '.metis'), { recursive: true });
  fs.writeFileSync(path.join(workspace, 'a.txt'), 'alpha\n');
  if (memory) fs.writeFileSync(path.join(workspace, '.metis', 'MEMORY.md'), 'tabs, not spaces\n');
  return { data: path.join(folder, 'data'), workspace };
}
/** Every turn reads a file and answers. */
const reader = (call: FakeCall) =>
  call.results.length === 0 ? { tool_calls: [{ name: 'read_file', input: { path: 'a.txt' } }] } : { text: 'read it' };

describe.each([
  ['anthropic', 'opus'],
  ['openai', 'gpt'],
] as const)('over the %s wire', (wire, model) => {
  // Promise 10.1: two turns send the same system and tool bytes, the second begins with the first.
  test('two turns send the same system and tool bytes, and the second begins with all of the first', async () => {
    const { data, workspace } = world(true);
    const fake = await startStrictFake(reader);
    const server = await startReal({ folder: data, registry: registryAt(fake) });
    const session = await server.session(workspace, model);
    for (const content of ['one', 'two']) expect((await server.turn(session, content)).status).toBe('completed');
    const [first, second, third, fourth] = fake.calls as [FakeCall, FakeCall, FakeCall, FakeCall];
    for (const later of [second, third, fourth]) {
      expect(toolBytes(later)).toBe(toolBytes(first));
      expect(later.system).toBe(first.system);
      if (wire === 'anthropic') expect(headBytes(later)).toBe(headBytes(first));
    }
    expect(historyBytes(third).startsWith(historyBytes(second))).toBe(true);
    expect(historyBytes(fourth).startsWith(historyBytes(third))).toBe(true);
  });

  // Promise 10.3: a restart with another persona changes no byte of a session.
  test('a restart changes no byte of what was sent, though the persona in the configuration did', async () => {
    const { data, workspace } = world(true);
    const fake = await startStrictFake(reader);
    const first = await startReal({ folder: data, registry: registryAt(fake) });
    const session = await first.session(workspace, model);
    await first.turn(session, 'one');
    await first.close();
    const context = { base_system_prompt: 'You are somebody else.' };
    const second = await startReal({ folder: data, registry: registryAt(fake), config: { context } });
    await second.turn(session, 'two');
    const [before, after] = [fake.calls[1]!, fake.calls[2]!];
    expect(after.system).toBe(before.system);
    expect(after.system).toContain('tabs, not spaces');
    expect(toolBytes(after)).toBe(toolBytes(before));
    expect(historyBytes(after).startsWith(historyBytes(before))).toBe(true);
    await second.turn(await second.session(workspace, model), 'one');
    expect(fake.calls.at(-1)!.system).toContain('You are somebody else.');
  });
});

describe('cache breakpoints of a session on the anthropic wire', () => {
  async function marks(memory: boolean, disabled: readonly string[] = []) {
    const { data, workspace } = world(memory);
    const fake = await startStrictFake(disabled.length > 0 ? () => ({ text: 'hello' }) : reader);
    const server = await startReal({
      folder: data,
      registry: registryAt(fake),
      config: { tools: { disabled: [...disabled] } },
    });
    expect((await server.turn(await server.session(workspace, 'opus'), 'one')).status).toBe('completed');
    const {
      system,
      tools = [],
      messages,
    } = fake.calls.at(-1)!.body as {
      system: Part[];
      tools?: Part[];
      messages: { content: Part[] }[];
    };
    const blocks = messages.flatMap((m) => m.content);
    const marked = (parts: readonly Part[]) =>
      parts.flatMap((part, i) => (part.cache_control ? [i - parts.length] : []));
    return { system, tools: marked(tools), blocks: marked(blocks), segments: marked(system), offered: tools.length };
  }

  // Promise 10.2: three cache marks with tools and memory, none on the memory text.
  test('stand on the last tool, the stable text and the newest block, never on the memory text', async () => {
    const { system, ...found } = await marks(true);
    expect(system).toHaveLength(2);
    expect(system[1]!.text).toContain('tabs, not spaces');
    expect(found).toMatchObject({ tools: [-1], segments: [-2], blocks: [-1] });
  });

  // Promise 10.2: without memory the one system block is marked.
  test('without memory the only system block carries one', async () => {
    const { system, ...found } = await marks(false);
    expect(system).toHaveLength(1);
    expect(found).toMatchObject({ tools: [-1], segments: [-1], blocks: [-1] });
  });

  // Promise 10.2: without tools there are two.
  test('without tools there are two', async () => {
    const { data } = world(true);
    const fake = await startStrictFake(reader);
    const { engine } = await startReal({ folder: data, registry: registryAt(fake) });
    const names = engine.tools
      .knownTools('/')
      .definitions()
      .map((tool) => tool.name);
    expect(await marks(true, names)).toMatchObject({ tools: [], segments: [-2], blocks: [-1], offered: 0 });
  });
});
