// A tool's time limit: whose it is, and what is left of a call that exceeds it (09 §9.2).
import fs from 'node:fs';
import path from 'node:path';
import { describe, expect, it } from 'vitest';
import type { ToolFactory } from '#core/ports/tool-port.ts';
import { defineTool, inputSchema } from '#tools/builtin/common.ts';
import { startEngine } from '../support/engine.ts';
import { manualClock } from '../support/manual-clock.ts';
import { call, delegate, planner, scenario, worker } from '../support/scenario.ts';
import { resultsOf, textOf } from '../support/stored.ts';
import { until } from '../support/until.ts';
import { gone } from '../tool/mcp/world.ts';

const auto = { default: { none: 'auto', read: 'auto', write: 'auto', execute: 'auto', network: 'auto' } } as const;

describe('a tool over its limit', () => {
  // Promise 09.12: A tool that exceeds a limit of 1 s fails as `timeout` by the dispatcher's clock.
  it('fails by the clock of the dispatcher, and is told to stop', async () => {
    const clock = manualClock();
    let told = 0;
    const patient: ToolFactory = () => ({
      definition: defineTool({
        name: 'wait',
        description: 'Waits.',
        side_effects: 'none',
        input_schema: inputSchema({}, []),
      }),
      cancel: async () => ++told > 0,
      execute: (_, { signal }) =>
        new Promise((_resolve, reject) => signal.addEventListener('abort', () => reject(signal.reason))),
    });
    const t = await startEngine({
      clock,
      tools: [patient],
      scenario: scenario(planner({ tool_calls: [call('wait', {})] }, { text: 'on' })),
      config: { tools: { timeouts: { per_tool: { wait: 1 } } }, tool_confirmation: auto },
    });
    const session = await t.session();
    const turnId = await t.submit(session, 'go');
    await t.event('tool.called');
    await until(() => clock.pending(1000) === 1);
    clock.advance(999);
    expect(t.typesOf(session.id)).not.toContain('tool.failed');
    clock.advance(1);
    expect((await t.event('tool.failed')).payload).toMatchObject({
      error_class: 'timeout',
      error_message: "Tool 'wait' exceeded 1s timeout.",
      latency_ms: 1000,
    });
    expect((await t.ended(turnId)).status).toBe('completed');
    expect(told).toBe(1);
  });

  // Promise 09.12: A command over its `timeout_seconds` hands back what it printed, its process group gone.
  it('hands back what a command had printed, and nothing of its process group is left', async () => {
    const clock = manualClock();
    const command = 'echo a; echo $$ > pid.new; mv pid.new pid; sleep 30';
    const t = await startEngine({
      clock,
      scenario: scenario(planner({ tool_calls: [call('shell', { command, timeout_seconds: 1 })] }, { text: 'on' })),
      config: { tool_confirmation: auto },
    });
    const session = await t.session();
    const turnId = await t.submit(session, 'go');
    const file = path.join(t.workspace, 'pid');
    await until(() => fs.existsSync(file));
    clock.advance(1000);
    expect((await t.event('tool.failed')).payload).toMatchObject({ error_class: 'timeout' });
    await gone(Number(fs.readFileSync(file, 'utf8')));
    expect((await t.ended(turnId)).status).toBe('completed');
    const [result] = await resultsOf(t, session.id);
    expect(textOf(result!)).toBe("Tool 'shell' exceeded 1s timeout.\na\n");
  });
});

describe('a limit of the configuration', () => {
  it('by name stands in place of the one that the tool brings along, and never ends a worker', async () => {
    const clock = manualClock();
    const slow: ToolFactory = () => ({
      definition: defineTool({
        name: 'wait',
        description: 'Waits.',
        side_effects: 'none',
        timeout_seconds: 5,
        input_schema: inputSchema({}, []),
      }),
      cancel: async () => true,
      execute: (_, { signal }) =>
        new Promise((_resolve, reject) => signal.addEventListener('abort', () => reject(signal.reason))),
    });
    const t = await startEngine({
      clock,
      tools: [slow],
      scenario: scenario(
        planner({ tool_calls: [call('wait', {}), delegate('the job')] }, { text: 'on' }),
        worker('the job', { text: 'worked', delay_ms: 9000 }),
      ),
      config: { tools: { timeouts: { per_tool: { wait: 2, delegate: 1 } } }, tool_confirmation: auto },
    });
    const session = await t.session();
    const turnId = await t.submit(session, 'go');
    await t.event('llm.call_started', (e) => e.session_id !== session.id);
    await until(() => clock.pending(9000) === 2);
    clock.advance(2000);
    expect((await t.event('tool.failed')).payload.error_message).toBe("Tool 'wait' exceeded 2s timeout.");
    clock.advance(7000);
    expect((await t.ended(turnId)).status).toBe('completed');
    const [, delegated] = await resultsOf(t, session.id);
    expect(textOf(delegated!)).toBe('worked');
  });
});
