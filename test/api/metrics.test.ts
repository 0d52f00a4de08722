// `/metrics`: the figures of the reports, in the text that Prometheus reads (18 §2).
import path from 'node:path';
import { describe, expect, test } from 'vitest';
import { fromPusd, toPusd } from '#protocol/money.ts';
import { copyExample, playJob } from '../support/demo-job.ts';
import { tempFolder } from '../support/engine.ts';
import { type Parsed, startServer } from '../support/http.ts';
import { startReal, startStrictFake } from '../support/real-server.ts';
import { registryAt } from '../support/registry-at.ts';
import { call, delegate, planner, scenario, worker } from '../support/scenario.ts';

const TOKEN = 'a-token-of-at-least-thirty-two-characters';
const NAME = /^[a-z_]+$/;
const SAMPLE = /^([a-z_]+)(?:\{((?:[a-z_]+="(?:[^"\\]|\\.)*",?)*)\})? (\d+(?:\.\d+)?)$/;

interface Sample {
  readonly name: string;
  readonly labels: Readonly<Record<string, string>>;
  readonly value: string;
}

/** Reads the text as its format says; every sample must stand under its own HELP and TYPE. */
function samples(text: string): Sample[] {
  expect(text.endsWith('\n')).toBe(true);
  let family = '';
  return text
    .slice(0, -1)
    .split('\n')
    .flatMap((line) => {
      const [, kind, name = '', rest = ''] = /^# (HELP|TYPE) (\S+) (.+)$/.exec(line) ?? [];
      if (kind !== undefined) {
        if (kind === 'HELP') family = name;
        else expect([name, /^(counter|gauge|histogram)$/.test(rest)]).toEqual([family, true]);
        expect(family).toMatch(NAME);
        return [];
      }
      const [, sample = '', labels = '', value = ''] = SAMPLE.exec(line) ?? [];
      expect(sample.replace(/_(bucket|sum|count)$/, ''), line).toBe(family);
      return [{ name: sample, labels: Object.fromEntries(pairs(labels)), value }];
    });
}
const pairs = (labels: string) => [...labels.matchAll(/([a-z_]+)="((?:[^"\\]|\\.)*)"/g)].map((m) => [m[1]!, m[2]!]);

const select = (all: readonly Sample[], name: string, labels: Sample['labels'] = {}) =>
  all.filter((s) => s.name === name && Object.entries(labels).every(([key, value]) => s.labels[key] === value));
const count = (all: readonly Sample[], name: string, labels: Sample['labels'] = {}) =>
  select(all, name, labels).reduce((total, { value }) => total + Number(value), 0);
/** Those that are not 0. */
const counted = (all: readonly Sample[], name: string) => select(all, name).filter(({ value }) => Number(value) > 0);
const dollars = (all: readonly Sample[], labels: Sample['labels']) =>
  fromPusd(select(all, 'metis_cost_usd_total', labels).reduce((total, { value }) => total + toPusd(value), 0n));

describe('/metrics', () => {
  // Promise 18.1: after the demo job calls by model and cost equal /analytics/cost, slot wins equal /analytics/routing.
  test('after the demo job has the calls and the cost of /analytics/cost and the wins of /analytics/routing', async () => {
    const folder = tempFolder();
    const fake = await startStrictFake(playJob());
    const workspace = copyExample(folder);
    const server = await startReal({
      folder: path.join(folder, 'data'),
      registry: registryAt(fake),
      wires: ['anthropic'],
    });
    const session = await server.session(workspace, 'anthropic:claude-opus-4-7');
    await server.turn(session, 'Put the checks into one place.');

    const answer = await server.call('GET', '/metrics');
    expect([answer.status, answer.headers.get('content-type')]).toEqual([
      200,
      'text/plain; version=0.0.4; charset=utf-8',
    ]);
    const all = samples(answer.body);
    const models = (await server.call('GET', '/analytics/cost?group_by=model,is_worker&from=all')).body;
    expect(models.data.length).toBeGreaterThan(1);
    for (const row of models.data as Parsed[]) {
      const labels = { model: row.model, is_worker: String(row.is_worker === 'worker') };
      expect(dollars(all, labels), row.model).toBe(row.cost_usd);
      expect(count(all, 'metis_llm_calls_total', { model: row.model, outcome: 'completed' })).toBe(row.call_count);
    }
    expect(dollars(all, {})).toBe(models.totals.cost_usd);
    const routing = (await server.call('GET', '/analytics/routing?from=all')).body;
    const wins = (routing.data.wins_by_policy as Parsed[]).filter((row) => row.count > 0);
    expect(wins.length).toBeGreaterThan(1);
    expect(counted(all, 'metis_route_wins_total').map((s) => [s.labels.policy, Number(s.value)])).toEqual(
      wins.map((row) => [row.policy, row.count]).sort(),
    );

    for (const { model, calls } of (await server.call('GET', '/analytics/reliability?from=all')).body
      .data as Parsed[]) {
      const buckets = select(all, 'metis_llm_latency_seconds_bucket', { model }).map((s) => Number(s.value));
      expect(buckets).toEqual([...buckets].sort((a, b) => a - b));
      expect([buckets.at(-1), count(all, 'metis_llm_latency_seconds_count', { model })]).toEqual([calls, calls]);
    }
    expect(count(all, 'metis_turns_total', { outcome: 'completed', is_worker: 'false' })).toBe(1);
    expect(count(all, 'metis_turns_total', { outcome: 'completed', is_worker: 'true' })).toBe(3);
    expect(count(all, 'metis_delegations_total', { outcome: 'completed' })).toBe(3);
  });

  test('every counter is there with 0 before its first event', async () => {
    const server = await startServer();
    const all = samples((await server.call('GET', '/metrics')).body);
    const model = 'anthropic:claude-opus-4-7';
    const known: readonly [string, Sample['labels']][] = [
      ['metis_llm_calls_total', { model, outcome: 'completed' }],
      ['metis_llm_calls_total', { model, outcome: 'failed' }],
      ['metis_llm_calls_total', { model, outcome: 'cancelled' }],
      ['metis_llm_errors_total', { model, error_class: 'rate_limit' }],
      ['metis_cost_usd_total', { model, is_worker: 'true' }],
      ['metis_route_wins_total', { policy: 'rule' }],
      ['metis_turns_total', { outcome: 'failed', is_worker: 'false' }],
      ['metis_delegations_total', { outcome: 'completed' }],
      ['metis_delegations_total', { outcome: 'timeout' }],
    ];
    for (const [name, labels] of known) {
      const found = select(all, name, labels).map(({ value }) => Number(value));
      expect([name, labels, found]).toEqual([name, labels, [0]]);
    }
    expect(select(all, 'metis_llm_errors_total', { error_class: 'cancelled' })).toEqual([]);
  });

  test('counts failures by class and what is going on at this moment', async () => {
    const server = await startServer({
      scenario: scenario(
        planner({ tool_calls: [delegate('break'), delegate('ask')] }, { text: 'so it goes' }),
        worker('break', { error: { error_class: 'invalid_request' } }),
        worker('ask', { tool_calls: [call('write_file', { path: 'a', content: 'b' })] }, { text: 'written' }),
      ),
    });
    const read = async () => samples((await server.call('GET', '/metrics')).body);
    const { body: session } = await server.call('POST', '/sessions', {
      workspace_path: server.workspace,
      initial_active_model: 'opus',
    });
    const stream = server.connect(`/sessions/${session.id}/stream?preset=chat`);
    await stream.frame((frame) => frame.type === 'subscribe_ack');
    const { body: turn } = await server.call('POST', `/sessions/${session.id}/turns`, { content: 'go' });
    const asked = (await server.event('tool.confirmation_requested')).payload as Parsed;
    await server.event('delegate.failed');

    const meanwhile = await read();
    const gauges = ['sessions', 'workers', 'turns', 'streams'].map((name) => count(meanwhile, `metis_active_${name}`));
    expect(gauges).toEqual([1, 1, 2, 1]);
    await server.call('POST', `/confirmations/${asked.confirmation_request_id}`, { decision: 'approve' });
    await server.ended(turn.turn_id);

    const all = await read();
    const [failure] = counted(all, 'metis_llm_errors_total');
    expect([failure?.labels.error_class, failure?.value]).toEqual(['invalid_request', '1']);
    expect(count(all, 'metis_llm_calls_total', { outcome: 'failed' })).toBe(1);
    const { body } = await server.call('GET', '/analytics/reliability?from=all');
    const failures = (body.data as Parsed[]).flatMap((row) => row.failures.map((f: Parsed) => [row.model, f.count]));
    expect(failures).toEqual([[failure?.labels.model, 1]]);
    expect(count(all, 'metis_turns_total', { outcome: 'failed', is_worker: 'true' })).toBe(1);
    expect(counted(all, 'metis_delegations_total').map((s) => [s.labels.outcome, s.value])).toEqual([
      ['completed', '1'],
      ['worker_error', '1'],
    ]);
    expect(count(all, 'metis_active_turns')).toBe(0);
  });

  // Promise 18.1: /metrics is open on loopback, behind the token elsewhere.
  test('is open on loopback, and behind the token where the server listens to others', async () => {
    const server = { auth_tokens: [TOKEN] };
    const near = await startServer({ config: { server } });
    expect((await near.call('GET', '/metrics')).status).toBe(200);
    expect((await near.call('GET', '/sessions')).status).toBe(401);
    // The test's server always listens on 127.0.0.1; what is configured is what the gate goes by.
    const far = await startServer({ config: { server: { ...server, host: '0.0.0.0' } } });
    const refused = await far.call('GET', '/metrics');
    expect([refused.status, refused.body.error.code]).toEqual([401, 'unauthorized']);
    expect((await far.call('GET', '/healthz')).status).toBe(200);
    expect((await far.call('GET', '/metrics', undefined, { authorization: `Bearer ${TOKEN}` })).status).toBe(200);
  });
});
