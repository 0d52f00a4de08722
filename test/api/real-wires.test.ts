// The demo's job over the real adapters: real HTTP on both wires, a strict provider, real files, exact money.
import fs from 'node:fs';
import path from 'node:path';
import { Decimal } from 'decimal.js';
import { describe, expect, test } from 'vitest';
import { createStyle } from '#cli/terminal.ts';
import { writeDemoReport } from '#server/commands/demo-report.ts';
import { copyExample, JOB_PROVIDERS, type JobRole, type JobStep, jobRole, playJob } from '../support/demo-job.ts';
import { tempFolder } from '../support/engine.ts';
import type { FakeCall } from '../support/fake-provider.ts';
import { priceFileA } from '../support/prices.ts';
import { startReal, startStrictFake } from '../support/real-server.ts';
import { registryAt, WIRES, type Wire } from '../support/registry-at.ts';
import { headBytes, historyBytes, toolBytes } from '../support/request-bytes.ts';

const MODELS = {
  anthropic: { planner: 'anthropic:claude-opus-4-7', worker: 'anthropic:claude-haiku-4-5' },
  openai: { planner: 'openai:gpt-5', worker: 'openai:gpt-5-mini' },
} as const;
const ROLES: readonly JobRole[] = ['planner', ...JOB_PROVIDERS];

async function runJob(wire: Wire) {
  const folder = tempFolder();
  const steps: JobStep[] = [];
  const fake = await startStrictFake(playJob(steps));
  const workspace = copyExample(folder);
  const server = await startReal({ folder: path.join(folder, 'data'), registry: registryAt(fake), wires: [wire] });
  const session = await server.session(workspace, MODELS[wire].planner);
  const turn = await server.turn(session, 'Put the checks into one place.');
  expect(turn).toMatchObject({ status: 'completed', stop_reason: 'end_turn', error_message: null });
  return { server, session, workspace, turn, steps, calls: fake.calls };
}

/** US dollars of one call at the fixture rates, by decimal arithmetic of its own. */
function dollars(model: string, usage: JobStep['usage']): Decimal {
  const rates = JSON.parse(priceFileA()).models[model];
  const rate = (field: string) => new Decimal(rates[`${field}_per_mtok_usd`] ?? rates.input_per_mtok_usd);
  return rate('input')
    .times(usage.input)
    .plus(rate('cached_read').times(usage.cached))
    .plus(rate('cache_write').times(usage.creation))
    .plus(rate('output').times(usage.output))
    .div(1_000_000);
}
const sum = (values: readonly Decimal[]) => values.reduce((a, b) => a.plus(b), new Decimal(0)).toFixed();
/** Calls of one session, oldest first. */
const callsOf = (calls: readonly FakeCall[], role: JobRole) => calls.filter((call) => jobRole(call) === role);

describe.each(WIRES)("the demo's job over the %s wire", (wire) => {
  test('three workers at once change the files, and every token and cost is exact', async () => {
    const { server, session, workspace, turn, steps } = await runJob(wire);
    // The last answer depends on the real exit code of the example's own tests.
    expect(turn.output).toContain('the tests pass');
    const read = (name: string) => fs.readFileSync(path.join(workspace, 'src', name), 'utf8');
    expect(read('checks.mjs')).toContain('export function checkedEmail');
    for (const name of JOB_PROVIDERS) {
      expect(read(`${name}.mjs`)).toContain("import { checkedEmail } from './checks.mjs';");
      expect(read(`${name}.mjs`)).not.toContain('throw new');
    }

    const { planner, worker } = MODELS[wire];
    expect(steps).toHaveLength(15);
    const costOf = ({ role, usage }: JobStep) => dollars(role === 'planner' ? planner : worker, usage);
    const expected = steps
      .map((step) => {
        const { input, cached, creation, output } = step.usage;
        const model = step.role === 'planner' ? planner : worker;
        return [model, input, cached, creation, output, costOf(step).toFixed()].join(' ');
      })
      .sort();
    const stored = server.events.flatMap((e) => (e.type === 'llm.call_completed' ? [e.payload] : []));
    const shown = stored.map((call) =>
      [
        call.model,
        call.input_tokens,
        call.cached_input_tokens,
        call.cache_creation_input_tokens,
        call.output_tokens,
        call.cost_usd,
      ].join(' '),
    );
    expect(shown.sort()).toEqual(expected);
    expect(stored.every((call) => call.priced && !call.usage_estimated && call.pricing_version === 'A')).toBe(true);

    const all = sum(steps.map(costOf));
    const workers = sum(steps.filter((step) => step.role !== 'planner').map(costOf));
    const report = await server.client.getCost({ parent_session: session, from: 'all' });
    expect(report.totals).toMatchObject({ cost_usd: all, call_count: 15 });
    const table = await writeDemoReport(server.client, session, createStyle(false), 100);
    const lines = (label: string) => new RegExp(`^${label} .*\\$([\\d.]+)$`, 'm').exec(table)?.[1];
    expect([lines('total'), lines('workers')]).toEqual([all, workers]);
    const planners = sum(steps.filter((step) => step.role === 'planner').map(costOf));
    const { body } = await server.call('GET', `/sessions/${session}`);
    expect(body).toMatchObject({ cost_so_far_usd: planners, workers_cost_usd: workers });
  });

  test('a session says the same bytes again before it says more, and so do workers of one kind', async () => {
    const { calls } = await runJob(wire);
    expect(ROLES.map((role) => callsOf(calls, role).length)).toEqual([6, 3, 3, 3]);
    for (const role of ROLES) {
      const own = callsOf(calls, role);
      for (const [i, next] of own.entries()) {
        if (i === 0) continue;
        expect(head(next)).toBe(head(own[0]!));
        expect(historyBytes(next).startsWith(historyBytes(own[i - 1]!))).toBe(true);
      }
    }
    const [first, ...others] = JOB_PROVIDERS.map((name) => callsOf(calls, name)[0]!);
    for (const other of others) {
      expect(toolBytes(other)).toBe(toolBytes(first!));
      expect(stable(other)).toBe(stable(first!));
    }
    expect(first!.tools).not.toContain('delegate');
  });
});

/** All bytes before the messages on the one wire; the tools' bytes on the other, which has its system text among them. */
function head(call: FakeCall): string {
  return call.wire === 'anthropic' ? headBytes(call) : toolBytes(call);
}
/** The system text that a worker shares with others. */
function stable(call: FakeCall): string {
  const text = call.system.slice(0, call.system.indexOf('## Task'));
  expect(text).toContain('## Worker mode');
  return text;
}
