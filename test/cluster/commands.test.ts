// A node that starts before its database, and the commands that are no node's: `metis doctor`, `metis run` (16 §11, 17 §2).
import { once } from 'node:events';
import fs from 'node:fs';
import net, { type AddressInfo } from 'node:net';
import path from 'node:path';
import { describe, expect, onTestFinished, test } from 'vitest';
import { runHere } from '../app/here.ts';
import { start, temporaryHome } from '../app/metis.ts';
import { startNodes } from '../support/nodes.ts';
import { startProxy, targetOf, through } from '../support/proxy.ts';
import { ownSchema, postgresService } from '../support/services.ts';
import { until } from '../support/until.ts';

const { url, missing } = await postgresService();

const NOBODY = 'postgres://metis:secret@127.0.0.1:1/metis';

async function emptySchema(): Promise<string> {
  const schema = await ownSchema(url!);
  onTestFinished(() => schema.drop());
  return schema.url;
}
function aHome(): string {
  const home = temporaryHome();
  onTestFinished(home.remove);
  return home.path;
}
const linesOf = (text: string) => text.trimEnd().split('\n');

describe.skipIf(url === null)(`commands beside a cluster${missing && `, skipped: ${missing}`}`, () => {
  test('a node that starts before its database says so, waits for it, and serves', async () => {
    const address = await emptySchema();
    const proxy = await startProxy(targetOf(address));
    proxy.cut();
    const node = start(['serve', '--port', '0'], {
      home: aHome(),
      env: { METIS_DATABASE_URL: through(address, proxy) },
    });
    onTestFinished(() => void node.stop('SIGKILL'));
    await until(() => /PostgreSQL does not answer at postgres:/.test(node.output.stderr));
    proxy.mend();
    await node.line(/listens on/);
  });

  test('one that is told to stop while it waits for its database ends at once, as after any stop', async () => {
    const proxy = await startProxy(targetOf(url!));
    proxy.cut();
    const env = { METIS_DATABASE_URL: through(url!, proxy) };
    const node = start(['serve', '--port', '0'], { home: aHome(), env });
    onTestFinished(() => void node.stop('SIGKILL'));
    await until(() => /PostgreSQL does not answer at postgres:/.test(node.output.stderr));
    // A connection that is being tried does not hold it.
    proxy.hole();
    expect(await node.stop('SIGINT')).toMatchObject({ code: 0, stdout: '' });
  });

  test('a PostgreSQL that is too old is refused with one sentence, by a start and by doctor', async () => {
    const address = through(await emptySchema(), await olderServer(targetOf(url!)));
    const env = { METIS_DATABASE_URL: address };
    const refused = await runHere(['serve', '--port', '0'], { home: aHome(), env });
    const sentence = /database_too_old: the server of database\.url is PostgreSQL 13\.\d+; use 14 or newer$/m;
    expect(refused.code).toBe(1);
    expect(refused.stderr).toMatch(sentence);
    const doctor = await runHere(['doctor', '--port', '0'], { home: aHome(), env });
    expect(doctor.code).toBe(1);
    expect(doctor.stdout).toMatch(sentence);
  });

  test('a node that gives out the address of another one is warned that they do not reach each other', async () => {
    const nodes = await startNodes({ database: url!, answer: () => ({ text: 'done' }) });
    const set = { 'cluster.advertise_url': 'http://127.0.0.1:1' };
    const a = await nodes.startHere('a', { set });
    const b = await nodes.startHere('b', { set });
    await until(() => /"nodes":\["a"\],"msg":"other nodes give out the address of this one/.test(b.log()));
    expect(a.log()).not.toContain('give out the address');
  });

  test('doctor looks at database, shared roots and NATS, changes nothing, and says what a start would refuse', async () => {
    const address = await emptySchema();
    const home = aHome();
    const root = fs.realpathSync(home);
    const doctor = async (env: Record<string, string>) =>
      runHere(['doctor', '--port', '0'], { home, env: { METIS_CLUSTER_SHARED_ROOTS: JSON.stringify([root]), ...env } });
    const sound = await doctor({ METIS_DATABASE_URL: address });
    expect(linesOf(sound.stdout)).toEqual(
      expect.arrayContaining([
        `ok       data folder ${path.join(home, '.metis')}`,
        expect.stringMatching(/^ok +PostgreSQL [\d.]+, database \S+; the next start brings it forward$/),
        `ok       shared roots ${root}`,
        expect.stringMatching(/^warning +nats\.url is not set/),
      ]),
    );
    expect(sound).toMatchObject({ code: 0, stderr: '' });
    expect(fs.existsSync(path.join(root, '.metis-cluster'))).toBe(false);

    const astray = await doctor({
      METIS_DATABASE_URL: address,
      METIS_NATS_URL: 'nats://127.0.0.1:1',
      METIS_CLUSTER_SHARED_ROOTS: JSON.stringify([path.join(root, 'not-there')]),
    });
    expect(astray.code).toBe(1);
    expect(astray.stdout).toMatch(/^error +shared_root_mismatch: .*not-there: it cannot be opened/m);
    expect(astray.stdout).toMatch(/^warning +NATS at 127\.0\.0\.1:1 does not take this server \(connection refused\)/m);

    const away = await doctor({ METIS_DATABASE_URL: NOBODY });
    expect(away.code).toBe(1);
    expect(away.stdout).toMatch(
      /^error +database_unreachable: no answer from postgres:\/\/metis@127\.0\.0\.1:1\/metis \(/m,
    );
    expect(away.stdout).not.toContain('secret');
  });

  // Promise 22.9: models that any node used, and whose successor costs less, are reported.
  test('doctor names models that any node used and whose successor costs less', async () => {
    const nodes = await startNodes({ database: url!, answer: () => ({ text: 'done' }) });
    const registry = path.join(path.dirname(nodes.root), 'registry.yaml');
    const text = fs.readFileSync(registry, 'utf8');
    const newer = 'aliases: [opus], superseded_by: anthropic:claude-haiku-4-5,';
    fs.writeFileSync(registry, text.replace('aliases: [opus],', newer));
    const a = await nodes.startHere('a');
    const remarks = async () =>
      linesOf((await nodes.command('doctor')).stdout).filter((line) => line.includes('costs less'));
    expect(await remarks()).toEqual([]);
    await a.turn(await a.session(nodes.workspace('one')), 'hello');
    expect(await remarks()).toEqual([
      'warning  anthropic:claude-opus-4-7 was used in the last 30 days; its successor anthropic:claude-haiku-4-5 costs less',
    ]);
  });

  test('`metis run` beside no other node goes on with the turns of nodes that died', async () => {
    let finished = async () => false;
    const nodes = await startNodes({
      database: url!,
      answer: async (call) => {
        if (call.number === 1) await call.disconnected;
        else if (call.user.includes('mine')) await until(finished);
        return { text: 'done' };
      },
    });
    const a = await nodes.start('a');
    const session = await a.session(nodes.workspace('theirs'));
    await a.client.submitTurn(session, { content: 'theirs' });
    await until(() => nodes.fake.calls.length === 1, 60);
    finished = async () => {
      const ended = "SELECT 1 FROM turns WHERE session_id = $1 AND status = 'completed'";
      return (await nodes.rows(ended, session)).length === 1;
    };
    await a.kill();
    expect(await nodes.command('run', 'mine', '--workspace', nodes.workspace('mine'))).toMatchObject({ code: 0 });
    expect(await finished()).toBe(true);
  });
});

/** A proxy before the database that makes its version 13. */
async function olderServer(target: {
  readonly host: string;
  readonly port: number;
}): Promise<{ readonly port: number }> {
  const server = net
    .createServer((near) => {
      const far = net.connect(target);
      for (const [from, to] of [
        [near, far],
        [far, near],
      ] as const) {
        from.on('error', () => to.destroy());
        from.on('close', () => to.destroy());
      }
      near.pipe(far);
      far.on('data', (bytes) => {
        near.write(Buffer.from(bytes.toString('latin1').replaceAll(/\b(?:1[4-9]|[2-9]\d)(?=\.\d)/g, '13'), 'latin1'));
      });
    })
    .listen(0, '127.0.0.1');
  await once(server, 'listening');
  onTestFinished(() => void server.close());
  return { port: (server.address() as AddressInfo).port };
}
