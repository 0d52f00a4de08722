// A node whose address does not lead to it: the others notice, report it and give it no work (16 §5.8).
import { describe, expect, test } from 'vitest';
import { freePort } from '../support/free-port.ts';
import { type Nodes, type ServingNode, startNodes } from '../support/nodes.ts';
import { startProxy } from '../support/proxy.ts';
import { postgresService } from '../support/services.ts';
import { until } from '../support/until.ts';

const { url, missing } = await postgresService();

/** Two rounds of questions, on a busy machine. */
const NOTICED_SECONDS = 60;

const reachable = async (from: ServingNode) =>
  Object.fromEntries((await from.client.listNodes()).map((node) => [node.name, node.reachable]));
const metric = async (from: ServingNode) =>
  /^metis_unreachable_nodes (\d+)$/m.exec(await (await fetch(`${from.url}/metrics`)).text())?.[1];

/** Its address is a proxy's. */
async function startBehindProxy(nodes: Nodes, name: string) {
  const port = await freePort();
  const between = await startProxy({ host: '127.0.0.1', port });
  const set = { 'server.port': port, 'cluster.advertise_url': `http://127.0.0.1:${between.port}` };
  return { node: await nodes.startHere(name, { set }), between };
}

describe.skipIf(url === null)(`nodes out of reach${missing && `, skipped: ${missing}`}`, () => {
  // Promise 16.21: a node out of reach is reported by log, metric, GET /nodes and doctor, until it is reached again.
  test('a node that cannot be reached is reported by the log, the metric and GET /nodes of the others, until it is reached again', async () => {
    const nodes = await startNodes({ database: url!, answer: () => ({ text: 'done' }) });
    const a = await nodes.startHere('a');
    const { node: b, between } = await startBehindProxy(nodes, 'b');
    expect(await reachable(a)).toEqual({ a: true, b: true });
    between.cut();
    await until(async () => (await reachable(a)).b === false, NOTICED_SECONDS);
    expect(await reachable(b)).toEqual({ a: true, b: true });
    expect(a.log()).toMatch(/"node":"b",.*"msg":"a node cannot be reached at its address and gets no work from here/);
    expect([await metric(a), await metric(b)]).toEqual(['1', '0']);

    const doctor = await nodes.command('doctor', '--port', '0');
    expect(doctor.stdout).toMatch(/^ok +node a is reached at http:/m);
    expect(doctor.stdout).toMatch(
      /^warning +node b cannot be reached at http:\S+ \(\w+\); check its cluster\.advertise_url/m,
    );

    between.mend();
    await until(async () => (await reachable(a)).b === true, NOTICED_SECONDS);
    expect(a.log()).toContain('"msg":"a node is reached again"');
    expect(await metric(a)).toBe('0');
  });

  // Promise 16.21: an address that leads to another node counts as out of reach.
  test('an address that leads to another node is one that does not lead to it', async () => {
    const nodes = await startNodes({ database: url!, answer: () => ({ text: 'done' }) });
    const a = await nodes.startHere('a');
    await nodes.startHere('b', { set: { 'cluster.advertise_url': a.url } });
    await until(async () => (await reachable(a)).b === false, NOTICED_SECONDS);
    expect(a.log()).toContain('"reason":"another server answers there"');
  });
});
