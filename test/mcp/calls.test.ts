// The official MCP client over both roads and both protocols: the same tools, results, progress and cancellation (19 §3.2).
import fs from 'node:fs';
import path from 'node:path';
import { beforeAll, describe, expect, test } from 'vitest';
import { atSuiteEnd, doorHome, mcpOver, PROTOCOLS, ROADS, usage } from '../support/doors.ts';
import { until } from '../support/until.ts';

const WAYS = ROADS.flatMap((road) => PROTOCOLS.map((protocol) => ({ road, protocol })));
const says = (task: string, ...responses: object[]) =>
  responses.map((respond, i) => ({ match: { role: 'worker', user_contains: task, call: i + 1 }, respond }));

describe.each(WAYS)('over $road with $protocol', ({ road, protocol }) => {
  // One door and its server for all four: a process takes longer to start than most calls.
  const atEnd = atSuiteEnd();
  let shared: Awaited<ReturnType<typeof mcpOver>>;
  beforeAll(async () => {
    const rules = [
      ...says(
        'count',
        { tool_calls: [{ name: 'list_files', input: { path: '.' } }], usage },
        { text: 'three files', usage, delay_ms: 1500 },
      ),
      ...says('as json', { text: '{"n": 3}', usage }),
      ...says('for ever', { hang: true }),
      ...says('slowly', { text: 'at last', usage, delay_ms: 1500 }),
      ...says('break', { error: { error_class: 'invalid_request' } }),
    ];
    const home = doorHome(rules, {}, atEnd);
    fs.mkdirSync(path.join(home.workspace, '.metis/workers'), { recursive: true });
    fs.writeFileSync(path.join(home.workspace, '.metis/workers/judge.yaml'), 'instructions: You judge.\n');
    shared = await mcpOver(road, home, { protocol });
  });

  // Promise 19.17: both roads and both protocols: tools, structured result, progress in order, cost.
  test('tools, a valid structured result, progress in order, cost and the list of workers', async () => {
    const { client, metis } = shared;
    const { tools } = await client.listTools();
    expect(tools.map(({ name }) => name)).toEqual(['delegate', 'workers', 'cost']);

    const seen: { progress: number; message?: string | undefined }[] = [];
    const result = await client.callTool(
      { name: 'delegate', arguments: { tier: 'fast', task: 'count the files' } },
      { onprogress: (progress) => void seen.push(progress) },
    );
    expect(result.isError).toBe(false);
    expect(result.content).toEqual([{ type: 'text', text: 'three files' }]);
    expect(result.structuredContent).toMatchObject({
      success: true,
      output: 'three files',
      error: null,
      usage_summary: { model: 'scripted:fast', tool_call_count: 1 },
      changed_files: [],
      dropped_tools: expect.arrayContaining(['delegate', 'memory_add']),
    });
    expect(seen.map(({ progress }) => progress)).toEqual(seen.map((_, i) => i + 1));
    expect(seen[0]?.message).toMatch(/^fast worker · /);
    expect(seen.map(({ message }) => message).join('\n')).toContain(' · 1 call · $0.0015');

    const schema = { type: 'object', properties: { n: { type: 'integer' } }, required: ['n'] };
    const json = await client.callTool({
      name: 'delegate',
      arguments: { tier: 'balanced', task: 'as json', output_schema: schema },
    });
    expect(json.structuredContent).toMatchObject({ output: { n: 3 } });

    const listed = await client.callTool({ name: 'workers', arguments: {} });
    expect(listed.structuredContent).toMatchObject({
      workers: [{ tier: 'fast', dropped_tools: expect.arrayContaining(['delegate']) }, { tier: 'balanced' }],
    });
    const cost = (await client.callTool({ name: 'cost', arguments: {} })).structuredContent as Record<string, string>;
    const root = (await (await metis()).listSessions()).sessions.find(({ door }) => door === 'mcp')!;
    expect(root).toMatchObject({ worker_count: 2, on_reached: 'stop', max_cost_usd: '5', client: 'test' });
    expect(cost).toEqual({
      own_usd: '0',
      workers_usd: root.workers_cost_usd,
      total_usd: root.workers_cost_usd,
      remaining_usd: root.budget?.remaining_usd,
    });
  });

  // Promise 19.17: an abort cancels the worker, over both roads and both protocols.
  test('an aborted call cancels its worker', async () => {
    const { client, metis } = shared;
    const gone = new AbortController();
    const call = client.callTool(
      { name: 'delegate', arguments: { tier: 'fast', task: 'for ever' } },
      { signal: gone.signal },
    );
    const refused = expect(call).rejects.toThrow();
    const worker = await until(async () => {
      const { sessions } = await (await metis()).listSessions({ include_workers: true, status: ['running'] });
      return sessions.find(({ is_worker, waiting_on }) => is_worker && waiting_on.length > 0);
    });
    gone.abort();
    await refused;
    await until(async () => (await (await metis()).getSession(worker.id)).disposition === 'cancelled');
  });

  // Promise 19.19: wait_seconds answers that it runs, and workers has the result.
  test('wait_seconds answers that it runs, and workers has the result', async () => {
    const { client } = shared;
    const early = await client.callTool({
      name: 'delegate',
      arguments: { tier: 'fast', task: 'slowly', wait_seconds: 1 },
    });
    const { status, worker_session_id } = early.structuredContent as Record<string, string>;
    expect(status).toBe('running');
    const late = await client.callTool({ name: 'workers', arguments: { worker_session_id, wait_seconds: 30 } });
    expect(late.structuredContent).toMatchObject({ success: true, output: 'at last', worker_session_id });
  });

  test('a failure is an error that begins with its mode, and a wrong call is no result', async () => {
    const { client } = shared;
    const failed = await client.callTool({ name: 'delegate', arguments: { tier: 'fast', task: 'break' } });
    expect(failed.isError).toBe(true);
    expect(failed.content).toMatchObject([{ text: expect.stringMatching(/^worker_error: /) }]);
    const wrong = (name: string, args: Record<string, unknown>) =>
      expect(client.callTool({ name, arguments: args })).rejects.toMatchObject({ code: -32602 });
    await wrong('nope', {});
    await wrong('delegate', { tier: 'huge', task: 'x' });
    await wrong('delegate', { tier: 'fast', task: 'x', worker: 'judge' });
    await wrong('delegate', { tier: 'fast', task: 'x', wait_seconds: 0 });
    await wrong('cost', { a: 1 });
    const unknown = await client.callTool({ name: 'workers', arguments: { worker_session_id: 'sess_x' } });
    expect(unknown).toMatchObject({ isError: true, content: [{ text: expect.stringMatching(/^not_found: /) }] });
  });
});

// Promise 19.19: what is too long is cut in text and structure.
test('300,000 characters come as 80,000 at most, in text and in structure', async () => {
  const home = doorHome(says('a lot', { text: '"\n'.repeat(150_000), usage, chunk_chars: 100_000 }));
  const { client } = await mcpOver('stdio', home);
  const result = await client.callTool({ name: 'delegate', arguments: { tier: 'fast', task: 'a lot' } });
  const [text] = result.content as { text: string }[];
  expect(text!.text.length).toBeLessThanOrEqual(80_000);
  expect(text!.text).toMatch(/\[cut: 300000 characters in all\]$/);
  const structured = JSON.stringify(result.structuredContent);
  expect(structured.length).toBeLessThanOrEqual(80_000);
  expect(structured.length).toBeGreaterThan(60_000);
});

test('a worker of the allowlist is a tool of its own', async () => {
  const home = doorHome([{ match: { role: 'worker' }, times: 'inf', respond: { text: 'good', usage } }], {
    workers: { planner_allow_workers: ['judge'] },
  });
  fs.mkdirSync(path.join(home.workspace, '.metis/workers'), { recursive: true });
  for (const name of ['judge', 'mute'])
    fs.writeFileSync(
      path.join(home.workspace, `.metis/workers/${name}.yaml`),
      `instructions: You are ${name}.\ndescription: The ${name}.\n`,
    );
  const { client } = await mcpOver('stdio', home);
  const { tools } = await client.listTools();
  expect(tools.map(({ name, description }) => [name, description?.slice(0, 10)])).toContainEqual([
    'judge',
    'The judge.',
  ]);
  expect(tools.map(({ name }) => name)).not.toContain('mute');
  const result = await client.callTool({ name: 'judge', arguments: { input: 'this' } });
  expect(result.structuredContent).toMatchObject({ success: true, output: 'good' });
  await expect(client.callTool({ name: 'mute', arguments: { input: 'this' } })).rejects.toMatchObject({ code: -32602 });
});
