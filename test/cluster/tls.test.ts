// Nodes that reach PostgreSQL and NATS over TLS alone, with a certificate of an authority of one's own.
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { describe, expect, onTestFinished, test, vi } from 'vitest';
import { makeCertificate } from '../support/certificate.ts';
import { noNats, startNatsServer } from '../support/nats.ts';
import { startNodes } from '../support/nodes.ts';
import { noPostgres, startPostgres } from '../support/postgres.ts';
import { until } from '../support/until.ts';

vi.setConfig({ testTimeout: 180_000 });
const lacking = noPostgres || noNats;

function makeAuthority(): ReturnType<typeof makeCertificate> {
  const folder = fs.mkdtempSync(path.join(os.tmpdir(), 'metis-tls-'));
  onTestFinished(() => fs.rmSync(folder, { recursive: true, force: true }));
  return makeCertificate(folder, 'IP:127.0.0.1');
}

describe.skipIf(lacking !== '')(`TLS to the services${lacking && `, skipped: ${lacking}`}`, () => {
  test('nodes check the certificates of both, and a node that does not know the authority is refused', async () => {
    const [tls, other] = [makeAuthority(), makeAuthority()];
    const database = await startPostgres(tls);
    const nats = await startNatsServer(tls);
    const nodes = await startNodes({
      database: database.url,
      answer: () => ({ text: 'done' }),
      set: { 'nats.url': nats.url },
    });
    const env = { NODE_EXTRA_CA_CERTS: tls.authority };
    const [a, b] = await Promise.all([nodes.start('a', { env }), nodes.start('b', { env })]);
    await until(() => [a!, b!].every((node) => node.log().includes('connected to NATS')));
    const session = await a!.session(nodes.workspace('one'));
    expect(await a!.turn(session, 'first')).toMatchObject({ status: 'completed' });
    expect(await b!.turn(session, 'second')).toMatchObject({ status: 'completed' });
    const used = `SELECT count(*) FILTER (WHERE NOT s.ssl) AS plain, count(*) FILTER (WHERE s.ssl) > 4 AS many
      FROM pg_stat_ssl s JOIN pg_stat_activity a USING (pid) WHERE a.client_addr IS NOT NULL`;
    expect(await nodes.rows(used)).toEqual([{ plain: '0', many: true }]);

    const foreign = database.url.replace(tls.authority, other.authority);
    const address = new URL(nodes.schema.url);
    for (const [name, value] of new URL(foreign).searchParams) address.searchParams.set(name, value);
    const refused = await nodes.refused('c', {
      database: address.href,
      env,
      set: { 'database.start_timeout_seconds': 5 },
    });
    expect(refused.code).toBe(1);
    expect(refused.stderr).toMatch(/self-signed certificate|unable to verify|issuer certificate/);
  });
});
