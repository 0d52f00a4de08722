// Claude Code and Codex as they are installed, without network or key, before a fake provider (19 §7): npm test -- clients.
import { spawn } from 'node:child_process';
import { createHash } from 'node:crypto';
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { describe, expect, it, onTestFinished, vi } from 'vitest';
import { LlmCallCompletedSchema } from '#protocol/event/turn-events.ts';
import { toPusd } from '#protocol/money.ts';
import { NO_TOKENS } from '#protocol/usage.ts';
import type { Received, Said } from '../api/gateway/provider.ts';
import { type GatewayWorld, startGateway } from '../api/gateway/world.ts';
import { ROOT } from '../app/metis.ts';
import { tableOf } from '../support/prices.ts';

vi.setConfig({ testTimeout: 180_000 });
/** Folder into which the script installed them; without it each is skipped. */
const INSTALLED = process.env.METIS_CLIENTS ?? '';
const program = (name: string) => path.join(INSTALLED, 'node_modules/.bin', name);
const has = (name: string) => INSTALLED !== '' && fs.existsSync(program(name));

interface Run {
  readonly code: number | null;
  readonly output: string;
}

function run(home: string, name: string, args: readonly string[], env: Readonly<Record<string, string>>): Promise<Run> {
  const child = spawn(program(name), args, {
    cwd: home,
    env: { PATH: process.env.PATH ?? '', HOME: home, ...env },
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  onTestFinished(() => void child.kill('SIGKILL'));
  let output = '';
  const add = (text: Buffer) => {
    output += text;
  };
  for (const stream of [child.stdout, child.stderr]) stream.on('data', add);
  return new Promise((resolve) => child.once('close', (code) => resolve({ code, output })));
}

function newHome(): string {
  const home = fs.mkdtempSync(path.join(os.tmpdir(), 'metis-client-'));
  onTestFinished(() => fs.rmSync(home, { recursive: true, force: true, maxRetries: 5 }));
  return home;
}

/**
 * Every call was asked of a model that ships with a price, and is booked at exactly that price.
 * @returns the models asked, and the sum in picodollars
 */
async function expectPriced({ provider, server }: GatewayWorld, adapter: string) {
  const prices = tableOf(fs.readFileSync(path.join(ROOT, 'config/prices.json'), 'utf8'));
  const asked = provider.received.flatMap(({ body: { model } }) =>
    model === undefined ? [] : [`${adapter}:${model}`],
  );
  const booked = server.events.flatMap((event) =>
    event.type === 'llm.call_completed' ? [LlmCallCompletedSchema.parse(event.payload)] : [],
  );
  expect(booked.map(({ model }) => model).sort()).toEqual(asked.sort());
  let sum = 0n;
  for (const { model, priced, usage_estimated, cost_usd, ...call } of booked) {
    const { input_tokens, cached_input_tokens, output_tokens } = call;
    const counts = { ...NO_TOKENS, input_tokens, cached_input_tokens, output_tokens };
    expect([model, priced, usage_estimated]).toEqual([model, true, false]);
    expect(toPusd(cost_usd)).toBe(prices.cost(model, counts).cost_pusd);
    expect(toPusd(cost_usd)).toBeGreaterThan(0n);
    sum += toPusd(cost_usd);
  }
  const { totals } = await server.client.getCost({ from: 'all' });
  expect([totals.call_count, toPusd(totals.cost_usd)]).toEqual([booked.length, sum]);
  return { asked, sum };
}

async function treeOf({ server }: GatewayWorld) {
  const { sessions } = await server.client.listSessions({ include_workers: true, limit: 100 });
  const { totals } = await server.client.getCost({ from: 'all' });
  return { root: sessions.filter((one) => !one.is_worker), workers: sessions.filter((one) => one.is_worker), totals };
}

describe.skipIf(!has('claude'))('Claude Code', () => {
  const claude = (
    { server }: GatewayWorld,
    prompt: string,
    { model = ['--model', 'claude-opus-4-7'], headers = '' } = {},
  ) =>
    run(newHome(), 'claude', ['-p', prompt, ...model, '--dangerously-skip-permissions'], {
      ANTHROPIC_BASE_URL: server.url,
      ANTHROPIC_CUSTOM_HEADERS: headers,
      ANTHROPIC_AUTH_TOKEN: 'metis',
      CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC: '1',
      CLAUDE_CODE_DISABLE_BACKGROUND_TASKS: '1',
      IS_SANDBOX: '1',
    });

  /** The main agent sends two sub-agents out, then ends. */
  function answer({ headers, body }: Received): Said {
    const results = JSON.stringify((body.messages as unknown[] | undefined)?.at(-1) ?? '').includes('tool_result');
    if (headers['x-claude-code-agent-id'] !== undefined) return { text: 'The sub-agent is done.' };
    return results || !Array.isArray(body.tools) || body.tools.length === 0
      ? { text: 'Both sub-agents are done.' }
      : { raw: twoAgents(String(body.model)) };
  }

  // Promise 19.25 (npm test -- clients): both on their own default models pass a cap, priced exactly by the shipped prices.
  it('on its default models under a cap is answered, priced exactly and below the cap', async () => {
    const world = await startGateway(
      (call) => {
        const { raw } = answer(call);
        return raw === undefined ? answer(call) : { raw: twoAgents(String(call.body.model), 'haiku') };
      },
      { shipped: true },
    );
    const ran = await claude(world, 'ask two agents', { model: [], headers: 'x-metis-budget-usd: 5' });
    expect(ran).toMatchObject({ code: 0, output: expect.stringContaining('Both sub-agents are done.') });
    const { asked, sum } = await expectPriced(world, 'anthropic');
    // Its main model, and the small one of the sub-agents.
    expect(new Set(asked).size).toBe(2);
    expect(sum).toBeLessThan(toPusd('5'));
    expect((await treeOf(world)).root).toMatchObject([{ max_cost_usd: '5' }]);
  });

  // Promise 19.25 (npm test -- clients): a default model without a price is refused under a cap, with the priced models of the wire.
  it('on a default model without a price under a cap shows what to do, and nothing is sent', async () => {
    const world = await startGateway(answer);
    const { output } = await claude(world, 'hi', { model: [], headers: 'x-metis-budget-usd: 5' });
    expect(output).toMatch(/not_priced: the registry does not list "claude-/);
    expect(output).toContain('models of messages with a price: claude-opus-4-7, claude-haiku-4-5');
    expect(world.provider.received).toEqual([]);
  });

  // Promise 19.25 (npm test -- clients): Claude Code with two sub-agents, Codex with one: right trees and sums, by the programs themselves.
  it('with two sub-agents is one tree with right parents, and its sums are those of its calls', async () => {
    const world = await startGateway(answer);
    const { code, output } = await claude(world, 'ask two agents');
    expect([code, output]).toEqual([0, expect.stringContaining('Both sub-agents are done.')]);
    const { root, workers, totals } = await treeOf(world);
    expect(root).toHaveLength(1);
    expect(workers).toHaveLength(2);
    expect(workers.map((one) => one.parent_session_id)).toEqual([root[0]!.id, root[0]!.id]);
    expect(root[0]!.client).toBe('claude-cli');
    const calls = world.server.events.filter(({ type }) => type === 'llm.call_completed');
    expect(totals.call_count).toBe(calls.length);
    const cost = await world.server.client.getCost({ group_by: 'root_session', from: 'all' });
    expect(cost.data).toEqual([expect.objectContaining({ root_session_id: root[0]!.id, cost_usd: totals.cost_usd })]);
  });

  // Promise 19.25 (npm test -- clients): a spent limit shows our sentence in both after one request.
  it('shows the sentence of a spent limit after one request', async () => {
    const world = await startGateway(answer, { config: { budgets: { session_default_usd: '0.001' } } });
    const { output } = await claude(world, 'hi');
    expect(output).toContain('The Metis session limit of 0.001 USD is reached');
    expect(world.provider.received).toEqual([]);
    expect(world.server.events.filter(({ type }) => type === 'budget.exceeded')).toHaveLength(1);
  });
});

describe.skipIf(!has('codex'))('Codex', () => {
  /** As the page shows it, at this server. */
  const shownIn = (page: string, { server }: GatewayWorld) =>
    /```toml\n([\s\S]*?)```/
      .exec(fs.readFileSync(path.join(ROOT, page), 'utf8'))![1]!
      .replace('http://127.0.0.1:8420', server.url);

  function codex(
    world: GatewayWorld,
    prompt: string,
    { page = 'docs/doors.md', model = 'model = "gpt-5"\n' } = {},
  ): Promise<Run> {
    const home = newHome();
    fs.mkdirSync(path.join(home, '.codex'));
    fs.writeFileSync(path.join(home, '.codex/config.toml'), `${model}${shownIn(page, world)}`);
    const args = ['exec', '--skip-git-repo-check', '--enable', 'multi_agent', '--sandbox', 'read-only', prompt];
    return run(home, 'codex', args, { METIS_KEY: 'metis' });
  }

  /** The main agent sends one sub-agent out, waits for it, then ends. */
  function answer({ headers, body }: Received): Said {
    if (headers['thread-id'] !== headers['session-id']) return { text: 'The sub-agent is done.' };
    const outputs = (body.input as { type?: string; output?: unknown }[]).filter(
      ({ type }) => type === 'function_call_output',
    );
    const model = String(body.model);
    if (outputs.length === 0) return { raw: agentCall(model, 'spawn_agent', { message: 'say so' }) };
    const agent = /agent_id\W+([0-9a-f-]{36})/.exec(JSON.stringify(outputs[0]))?.[1];
    return outputs.length === 1
      ? { raw: agentCall(model, 'wait_agent', { targets: [agent] }) }
      : { text: 'All is done.' };
  }

  // Promise 19.25 (npm test -- clients): Claude Code with two sub-agents, Codex with one: right trees and sums, by the programs themselves.
  it('with one sub-agent is one tree with right parents, and its sums are those of its calls', async () => {
    const world = await startGateway(answer);
    const { code, output } = await codex(world, 'ask an agent');
    expect([code, output]).toEqual([0, expect.stringContaining('All is done.')]);
    const { root, workers, totals } = await treeOf(world);
    expect(root).toHaveLength(1);
    expect(workers.map((one) => one.parent_session_id)).toEqual([root[0]!.id]);
    const cost = await world.server.client.getCost({ group_by: 'root_session', from: 'all' });
    expect(cost.data).toEqual([expect.objectContaining({ root_session_id: root[0]!.id, cost_usd: totals.cost_usd })]);
  });

  // Promise 19.25 (npm test -- clients): both on their own default models pass a cap, priced exactly by the shipped prices.
  it('on its default model under a cap is answered, priced exactly and below the cap', async () => {
    const world = await startGateway(
      () => ({ text: 'All is done.', usage: { input: 9000, cached: 4000, output: 300 } }),
      {
        shipped: true,
        config: { budgets: { session_default_usd: '5' } },
      },
    );
    const ran = await codex(world, 'hi', { model: '' });
    expect(ran).toMatchObject({ code: 0, output: expect.stringContaining('All is done.') });
    const { asked, sum } = await expectPriced(world, 'openai');
    expect(asked.length).toBeGreaterThan(0);
    expect(sum).toBeLessThan(toPusd('5'));
    expect((await treeOf(world)).root).toMatchObject([{ max_cost_usd: '5' }]);
  });

  // Promise 19.25 (npm test -- clients): a default model without a price is refused under a cap, with the priced models of the wire.
  it('on a default model without a price under a cap shows what to do, and nothing is sent', async () => {
    const world = await startGateway(answer, { config: { budgets: { session_default_usd: '5' } } });
    const { output } = await codex(world, 'hi', { model: '' });
    expect(output).toMatch(/not_priced: the registry does not list \\"gpt-/);
    expect(output).toContain('models of responses with a price: gpt-5, gpt-5-mini');
    expect(world.provider.received).toEqual([]);
  });

  // Promise 19.25 (npm test -- clients): Codex with the configuration that the guide shows sends its key, and is that key's caller.
  it('sends the key that env_key names, and none where the configuration of the README names none', async () => {
    const token_sha256 = createHash('sha256').update('metis').digest('hex');
    const keyed = await startGateway(() => ({ text: 'All is done.' }), {
      config: { gateway: { keys: { ci: { token_sha256, daily_usd: null } } } },
    });
    expect(await codex(keyed, 'hi')).toMatchObject({ code: 0, output: expect.stringContaining('All is done.') });
    expect((await treeOf(keyed)).root).toMatchObject([{ caller: 'ci' }]);
    const open = await startGateway(() => ({ text: 'All is done.' }));
    expect(await codex(open, 'hi', { page: 'README.md' })).toMatchObject({ code: 0 });
    expect((await treeOf(open)).root).toMatchObject([{ caller: '' }]);
  });

  // Promise 19.25 (npm test -- clients): a spent limit shows our sentence in both after one request.
  it('shows the sentence of a spent limit after one request', async () => {
    const world = await startGateway(answer, { config: { budgets: { session_default_usd: '0.001' } } });
    const { output } = await codex(world, 'hi');
    expect(output).toContain('The Metis session limit of 0.001 USD is reached');
    expect(world.provider.received).toEqual([]);
    expect(world.server.events.filter(({ type }) => type === 'budget.exceeded')).toHaveLength(1);
  });
});

function twoAgents(model: string, agentModel?: string): string {
  const event = (data: { readonly type: string; readonly [key: string]: unknown }) =>
    `event: ${data.type}\ndata: ${JSON.stringify(data)}\n\n`;
  const usage = { input_tokens: 100, output_tokens: 1 };
  const blocks = [0, 1].flatMap((index) => [
    event({
      type: 'content_block_start',
      index,
      content_block: { type: 'tool_use', id: `toolu_${index}`, name: 'Agent', input: {} },
    }),
    event({
      type: 'content_block_delta',
      index,
      delta: {
        type: 'input_json_delta',
        partial_json: JSON.stringify({
          description: `part ${index}`,
          prompt: 'say so',
          subagent_type: 'general-purpose',
          model: agentModel,
        }),
      },
    }),
    event({ type: 'content_block_stop', index }),
  ]);
  const message = { id: 'msg_1', type: 'message', role: 'assistant', model, content: [], stop_reason: null, usage };
  return [
    event({ type: 'message_start', message }),
    ...blocks,
    event({ type: 'message_delta', delta: { stop_reason: 'tool_use' }, usage: { output_tokens: 40 } }),
    event({ type: 'message_stop' }),
  ].join('');
}

function agentCall(model: string, name: string, input: object): string {
  const event = (type: string, rest: object) => `event: ${type}\ndata: ${JSON.stringify({ type, ...rest })}\n\n`;
  const item = {
    type: 'function_call',
    id: `fc_${name}`,
    call_id: `call_${name}`,
    namespace: 'multi_agent_v1',
    name,
    arguments: JSON.stringify(input),
    status: 'completed',
  };
  const usage = { input_tokens: 100, output_tokens: 20, total_tokens: 120, input_tokens_details: { cached_tokens: 0 } };
  const response = {
    id: 'resp_1',
    object: 'response',
    created_at: 1,
    model,
    output: [item],
    status: 'completed',
    usage,
  };
  return [
    event('response.created', { response: { ...response, status: 'in_progress', output: [] } }),
    event('response.output_item.added', { output_index: 0, item }),
    event('response.output_item.done', { output_index: 0, item }),
    event('response.completed', { response }),
  ].join('');
}
