// A model sees what is left of its money: behind each delegation, and once when it runs low (20 §5).
import { describe, expect, it } from 'vitest';
import { fromPusd, toPusd } from '#protocol/money.ts';
import { toolText } from '#protocol/tool.ts';
import { type ConfigOver, startEngine, type TestEngine } from '../support/engine.ts';
import { restart } from '../support/moments.ts';
import { call, delegate, planner, scenario, worker } from '../support/scenario.ts';
import { resultsOf, textOf } from '../support/stored.ts';
import { tool } from '../support/tools.ts';

const usage = { input_tokens: 1000, output_tokens: 100 };
const turn = { max_llm_calls: 50, max_output_tokens: 100, timeout_seconds: null };
const job = scenario(
  planner(
    { tool_calls: [delegate('job-a'), delegate('job-b', { output_schema: { type: 'object' } })], usage },
    { tool_calls: [call('list_files', {})], usage },
    { text: 'end', usage },
  ),
  worker('job-a', { text: 'did a', usage }),
  worker('job-b', { text: '{"did":"b"}', usage }),
);
async function texts(max_cost_usd: string | null, config: ConfigOver = {}) {
  const t = await startEngine({ scenario: job, config: { turn, ...config } });
  const session = await t.session({ initial_active_model: 'sonnet', max_cost_usd });
  await t.run(session, 'go');
  const results = await resultsOf(t, session.id);
  return { t, results, said: results.map(textOf) };
}
/** The ledger of the tree before each of its `tool.completed`, in order. */
function spentBefore(t: TestEngine): bigint[] {
  let spent = 0n;
  const at: bigint[] = [];
  for (const { type, payload } of t.events) {
    if (type === 'llm.call_completed') spent += toPusd((payload as { cost_usd: string }).cost_usd);
    if (type === 'tool.completed') at.push(spent);
  }
  return at;
}

describe('the last line of a delegation', () => {
  // Promise 20.10: the line is limit less ledger less reservations, and nothing else of the request changes; absent without a limit.
  it('is what limit, ledger and reservations leave at that moment, and nothing else of the request changes', async () => {
    const { t, said } = await texts('2');
    const left = (text: string) => /\n\[budget: \$(\S+) of \$2 left\]$/.exec(text)?.[1];
    const spent = spentBefore(t);
    const least = fromPusd(toPusd('2') - spent[1]!);
    expect([left(said[0]!), left(said[1]!)]).toContain(least);
    expect(said[0]).toMatch(/^did a\n\[budget: /);
    expect(said[1]).toMatch(/^\{"did":"b"\}\n\[budget: /);
    expect(said[2]).not.toContain('[budget');
    const unlimited = await texts(null);
    expect(unlimited.said.slice(0, 2)).toEqual(['did a', '{"did":"b"}']);
    const heads = ({ adapter }: TestEngine) =>
      adapter.requests
        .filter((r) => !r.caller.is_worker)
        .map((r) => [r.system_prompt, r.system_prompt_volatile, r.tools]);
    expect(heads(t)).toEqual(heads(unlimited.t));
  });

  // Promise 04.25: The server's notes are a block of their own behind a schema answer.
  it('is a block of its own, so that an answer by schema stays JSON', async () => {
    const { results } = await texts('2');
    const [output, note] = results[1]!.content.map((block) => (block.type === 'text' ? block.text : ''));
    expect(JSON.parse(output!)).toEqual({ did: 'b' });
    expect(note).toMatch(/^\[worker [^\n]*\]\n\[budget: [^\n]*\]$/);
  });

  it('speaks of the limit with the least left', async () => {
    const { said } = await texts('2', { budgets: { daily_usd: '1' } });
    expect(said[0]).toMatch(/\[budget: \$0\.\d+ of \$1 left\]$/);
  });

  // Promise 20.10: absent when switched off.
  it('is left out where the configuration says so', async () => {
    const { said } = await texts('2', { budgets: { show_to_model: false, warn_ratio: 0.000001 } });
    expect(said.join('\n')).not.toContain('[budget');
  });
});

it('a warning is said once, by the next tool result', async () => {
  const t = await startEngine({
    config: { turn, budgets: { warn_ratio: 0.000001 } },
    scenario: scenario(
      planner(
        { tool_calls: [call('list_files', {}), call('list_files', {})], usage },
        { tool_calls: [call('list_files', {})], usage },
        { text: 'end', usage },
      ),
    ),
  });
  const session = await t.session({ initial_active_model: 'sonnet', max_cost_usd: '2' });
  await t.run(session, 'go');
  const warnings = t.events.filter((e) => e.type === 'budget.warning');
  expect(warnings).toHaveLength(1);
  const { limit_usd, spent_usd } = warnings[0]!.payload as { limit_usd: string; spent_usd: string };
  const line = `[budget warning: $${fromPusd(toPusd(limit_usd) - toPusd(spent_usd))} of $2 left]`;
  const said = (await resultsOf(t, session.id)).map(textOf);
  expect(said.filter((text) => text.endsWith(line))).toHaveLength(1);
  expect(said.slice(0, 2).join('\n')).toContain(line);
  expect(said[2]).not.toContain('[budget');
});

it('a warning that no result had said before the process died is said by the first one after it', async () => {
  let hang = true;
  const slow = tool('slow', { execute: async () => (hang ? new Promise<never>(() => {}) : toolText('there')) });
  const options = {
    config: { turn, budgets: { warn_ratio: 0.000001 } },
    tools: [slow],
    scenario: scenario(
      planner(
        { tool_calls: [call('slow', {})], usage },
        { tool_calls: [call('slow', {})], usage },
        { text: 'end', usage },
      ),
    ),
  };
  const first = await startEngine(options);
  const session = await first.session({ initial_active_model: 'sonnet', max_cost_usd: '2' });
  const turnId = await first.submit(session, 'go');
  await first.event('tool.called');
  hang = false;
  const second = await restart(first, options);
  expect((await second.ended(turnId)).status).toBe('completed');
  const said = (await resultsOf(second, session.id)).map(textOf);
  expect(said[0]).toMatch(/^there\n\[budget warning: \$\S+ of \$2 left\]$/);
  expect(said[1]).toBe('there');
});
