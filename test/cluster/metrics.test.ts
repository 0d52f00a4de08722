// Metrics of a cluster, and the dashboard and alert rules that use them (18 §4).
import fs from 'node:fs';
import path from 'node:path';
import { load } from 'js-yaml';
import { describe, expect, onTestFinished, test } from 'vitest';
import { ROOT } from '../app/metis.ts';
import { tempFolder } from '../support/engine.ts';
import { listChapterMetrics, listPrintedMetrics, readSample } from '../support/metric-names.ts';
import { type RealServer, startReal, startStrictFake } from '../support/real-server.ts';
import { registryAt } from '../support/registry-at.ts';
import { natsService, ownSchema, postgresService } from '../support/services.ts';
import { until } from '../support/until.ts';

const [{ url, missing }, nats] = [await postgresService(), await natsService()];
const MODEL = 'anthropic:claude-opus-4-7';
const names = (listed: readonly { readonly name: string }[]) => listed.map(({ name }) => name).sort();
const readMetrics = async (server: RealServer): Promise<string> => (await server.call('GET', '/metrics')).body;

/** Of those that count from the start, the samples that are missing or not 0. */
function listMissingZeros(text: string, wanted: readonly string[]): readonly string[] {
  return wanted.filter((sample) => {
    const [, name, labels] = /^([a-z_]+)(?:\{(.*)\})?$/.exec(sample)!;
    return readSample(text, name!, labels ?? '') !== 0;
  });
}

describe('one server', () => {
  // Promise 18.7: The names of chapter 18 are those of one server, with 0 from the start; commits are counted and timed.
  test('prints the names of chapter 18, each with 0 from the start, and counts commits', async () => {
    const fake = await startStrictFake(() => ({ text: 'ok' }));
    const root = tempFolder();
    const server = await startReal({ folder: path.join(root, 'data'), registry: registryAt(fake) });
    const before = await readMetrics(server);
    const printed = listPrintedMetrics(before);
    const { everywhere } = listChapterMetrics();
    expect(everywhere.length).toBeGreaterThan(14);
    expect([...printed.keys()].sort()).toEqual(names(everywhere));
    for (const { name, labels } of everywhere.filter(({ name }) => printed.get(name)!.labels.length > 0))
      expect([name, printed.get(name)!.labels]).toEqual([name, [...labels].sort()]);
    expect(
      listMissingZeros(before, [
        'metis_commits_total{outcome="refused"}',
        'metis_commits_total{outcome="failed"}',
        'metis_deliveries_waiting',
      ]),
    ).toEqual([]);
    expect(before).toMatch(/^metis_commit_seconds_bucket\{le="\+Inf"\} \d+$/m);
    await server.turn(await server.session(root, MODEL), 'hello');
    const after = await readMetrics(server);
    const committed = readSample(after, 'metis_commits_total', 'outcome="committed"')!;
    expect(committed).toBeGreaterThan(readSample(before, 'metis_commits_total', 'outcome="committed"')!);
    expect(readSample(after, 'metis_commit_seconds_count')).toBe(committed);
    expect(readSample(after, 'metis_commit_seconds_sum')).toBeGreaterThan(0);
    const busy = (text: string) => readSample(text, 'metis_event_loop_busy_seconds_total')!;
    expect(busy(after)).toBeGreaterThan(busy(before));
    expect(readSample(after, 'metis_event_loop_delay_seconds', 'quantile="1"')).toBeLessThan(60);
  });
});

describe('the dashboard and the alert rules', () => {
  const read = (name: string) => fs.readFileSync(path.join(ROOT, 'examples/monitoring', name), 'utf8');
  const chapter = listChapterMetrics();
  const known = new Map(
    [...chapter.everywhere, ...chapter.cluster, ...chapter.nats].map((each) => [each.name, each.labels]),
  );
  const HISTOGRAMS = ['metis_llm_latency_seconds', 'metis_commit_seconds', 'metis_forward_seconds'];
  /** Of Prometheus itself. */
  const OUTSIDE = new Set(['job', 'instance', 'le']);

  /** What a query names that does not exist. */
  function listUnknown(query: string): readonly string[] {
    const unknown: string[] = [];
    const labels = new Set<string>(OUTSIDE);
    const found = [...query.matchAll(/\b(metis_[a-z_]+)(?:\{([^}]*)\})?/g)];
    for (const [, sample = '', matchers = ''] of found) {
      const histogram = HISTOGRAMS.find((name) => [`${name}_bucket`, `${name}_sum`, `${name}_count`].includes(sample));
      const own = known.get(histogram ?? sample);
      if (own === undefined || (histogram === undefined && HISTOGRAMS.includes(sample))) unknown.push(sample);
      for (const label of own ?? []) labels.add(label);
      for (const [, label] of matchers.matchAll(/([a-z_]+)\s*(?:=|!=|=~|!~)\s*"/g))
        if (!OUTSIDE.has(label!) && !own?.includes(label!)) unknown.push(`${sample}{${label}}`);
    }
    for (const [, list] of query.matchAll(/\b(?:by|without|on)\s*\(([^)]*)\)/g))
      for (const label of list!.split(',').map((each) => each.trim()))
        if (!labels.has(label)) unknown.push(`by (${label})`);
    if (found.length === 0 && !/^up\{/.test(query)) unknown.push('no metric');
    return unknown;
  }

  // Promise 18.7: Every query of the dashboard and of the alert rules names metrics and labels that exist.
  test('name metrics and labels that exist, and the page explains every alert', () => {
    expect(listUnknown('rate(metis_nope_total{a="b"}[5m])')).toEqual(['metis_nope_total', 'metis_nope_total{a}']);
    expect(listUnknown('sum by (color) (metis_trees_held)')).toEqual(['by (color)']);
    interface Panel {
      readonly title: string;
      readonly type: string;
      readonly targets?: readonly { readonly expr: string }[];
    }
    const { panels, templating } = JSON.parse(read('grafana-dashboard.json')) as {
      panels: Panel[];
      templating: { list: { query: string }[] };
    };
    const queries = panels.flatMap(({ title, targets = [] }) => targets.map(({ expr }) => ({ title, expr })));
    expect(queries.length).toBeGreaterThan(20);
    for (const { title, expr } of queries) expect([title, listUnknown(expr)]).toEqual([title, []]);
    for (const { query } of templating.list.filter((each) => each.query.includes('metis')))
      expect(listUnknown(query)).toEqual([]);

    const { groups } = load(read('alerts.yaml')) as {
      groups: { rules: { alert: string; expr: string; annotations: { summary: string } }[] }[];
    };
    const rules = groups.flatMap((group) => group.rules);
    const page = fs.readFileSync(path.join(ROOT, 'docs/operations.md'), 'utf8');
    const explained = [...page.matchAll(/^\| `(Metis\w+)` \|/gm)].map(([, name]) => name);
    expect(rules.map(({ alert }) => alert)).toEqual(explained);
    for (const { alert, expr, annotations } of rules) {
      expect([alert, listUnknown(expr)]).toEqual([alert, []]);
      expect(annotations.summary.length).toBeGreaterThan(10);
    }
    // A figure that no chart and no rule shows is not watched by anybody.
    const used = [...queries.map(({ expr }) => expr), ...rules.map(({ expr }) => expr)].join('\n');
    const unused = [...chapter.cluster, ...chapter.nats].filter(({ name }) => !used.includes(name));
    expect(unused).toEqual([]);
  });
});

describe.skipIf(url === null)(`metrics of a cluster${missing && `, skipped: ${missing}`}`, () => {
  // Promise 18.7: The names of chapter 18 are those of a node; takeovers and forwards are counted as they happen.
  test('prints the names of chapter 18 with 0 from the start; counts forwards, takeovers and trees', async () => {
    const schema = await ownSchema(url!);
    onTestFinished(() => schema.drop());
    const [home, root] = [tempFolder(), tempFolder()];
    let release = () => {};
    const held = new Promise<void>((resolve) => {
      release = resolve;
    });
    let slow = 0;
    const fake = await startStrictFake(async ({ user }) => {
      if (user.includes('slowly') && ++slow === 1) await held;
      return { text: 'ok' };
    });
    const start = (name: string) =>
      startReal({
        folder: path.join(home, name),
        registry: registryAt(fake),
        config: {
          database: { url: schema.url },
          nats: { url: nats.url },
          cluster: { name: schema.name, node_name: name, lease_seconds: 3, shared_roots: [root] },
          shutdown: { drain_seconds: 0, linger_seconds: 0 },
        },
      });
    const [a, b] = [await start('a'), await start('b')];
    const { everywhere, cluster, nats: ofNats } = listChapterMetrics();
    const isConnected = async (server: RealServer) =>
      readSample(await readMetrics(server), 'metis_nats_connected') === 1;
    if (nats.url !== null) await until(async () => (await isConnected(a)) && (await isConnected(b)));
    const before = await readMetrics(b);
    const printed = listPrintedMetrics(before);
    const wanted = [...everywhere, ...cluster, ...(nats.url === null ? [] : ofNats)];
    expect([...printed.keys()].sort()).toEqual(names(wanted));
    for (const { name, labels } of cluster)
      expect([name, printed.get(name)!.labels]).toEqual([name, [...labels].sort()]);
    expect(
      listMissingZeros(before, [
        'metis_takeovers_total{cause="released"}',
        'metis_takeovers_total{cause="lapsed"}',
        'metis_trees_dropped_total',
        ...['answered', 'not_taken', 'broken', 'failed'].map((outcome) => `metis_forwards_total{outcome="${outcome}"}`),
        'metis_forward_seconds_count',
        'metis_trees_held',
        'metis_database_waiting',
        'metis_notices_waiting',
      ]),
    ).toEqual([]);
    expect(readSample(before, 'metis_lease_age_seconds')).toBeLessThan(3);
    if (nats.url !== null) expect(readSample(before, 'metis_nats_round_trip_seconds')).toBeGreaterThan(0);

    const session = await a.session(root, MODEL);
    expect(readSample(await readMetrics(a), 'metis_trees_held')).toBe(1);
    expect(
      await b.call('POST', `/sessions/${session}/turns`, { content: 'hello' }, { Prefer: 'wait=60' }),
    ).toMatchObject({
      status: 200,
    });
    const forwarded = await readMetrics(b);
    expect(readSample(forwarded, 'metis_forwards_total', 'outcome="answered"')).toBe(1);
    expect(readSample(forwarded, 'metis_forward_seconds_count')).toBe(1);
    expect(readSample(forwarded, 'metis_trees_held')).toBe(0);
    expect(readSample(await readMetrics(a), 'metis_forwards_total', 'outcome="answered"')).toBe(0);

    // What a held when it ended is another node's.
    await a.call('POST', `/sessions/${session}/turns`, { content: 'answer slowly' });
    await a.event('llm.call_started', (event) => event.session_id === session);
    const closing = a.close();
    await until(async () => readSample(await readMetrics(b), 'metis_trees_held') === 1);
    release();
    await closing;
    const after = await readMetrics(b);
    expect(readSample(after, 'metis_takeovers_total', 'cause="released"')).toBe(1);
    expect(readSample(after, 'metis_takeovers_total', 'cause="lapsed"')).toBe(0);
    expect(readSample(after, 'metis_commits_total', 'outcome="failed"')).toBe(0);
  });
});
