// Transactions of one round trip: all of their statements or none, and no row held while their values are on the way.
import { once } from 'node:events';
import net from 'node:net';
import pg from 'pg';
import { describe, expect, onTestFinished, test } from 'vitest';
import { silentLogger } from '#core/ports/logger.ts';
import type { Statement } from '#store/postgres/connection/client.ts';
import { isNothingChanged } from '#store/postgres/connection/faults.ts';
import { createPool } from '#store/postgres/connection/pool.ts';
import { encodeTextArray } from '#store/postgres/connection/text-array.ts';
import { targetOf, through } from '../../support/proxy.ts';
import { ownSchema, postgresService } from '../../support/services.ts';
import { until } from '../../support/until.ts';

const { url, missing } = await postgresService();

async function openTable() {
  const schema = await ownSchema(url!);
  onTestFinished(() => schema.drop());
  const eyes = new pg.Client({ connectionString: schema.url });
  await eyes.connect();
  onTestFinished(() => eyes.end());
  await eyes.query('CREATE TABLE things (id text PRIMARY KEY, n bigint, label text)');
  return { url: schema.url, rows: async () => (await eyes.query('SELECT id, n, label FROM things ORDER BY id')).rows };
}

function openPool(address: string) {
  const pool = createPool({ url: address, size: 1, synchronousCommit: 'on', log: silentLogger });
  onTestFinished(() => pool.close());
  return pool;
}

const plain = (sql: string, values: Statement['values'] = []) => ({ sql, values, isChange: false, take: null });
const change = (sql: string, values: Statement['values'] = []) => ({ ...plain(sql, values), isChange: true });
const insert = (id: string, label: string | null = null) =>
  plain('INSERT INTO things (id, n, label) VALUES (@id, @n, @label)', { id, n: 1n, label });

describe.skipIf(url === null)(`statements at once${missing && `, skipped: ${missing}`}`, () => {
  test('all of them are stored or none, and the connection goes on after either', async () => {
    const table = await openTable();
    const pool = openPool(table.url);
    await pool.atOnce([insert('a'), insert('b')]);
    await expect(pool.atOnce([insert('c'), insert('a'), insert('d')])).rejects.toMatchObject({ code: '23505' });
    // What an earlier attempt prepared behind its failure is prepared again.
    await expect(pool.atOnce([plain('SELECT CAST(? AS bigint)', ['x']), insert('c')])).rejects.toMatchObject({
      code: '22P02',
    });
    await pool.atOnce([plain('SELECT CAST(? AS bigint)', ['1']), insert('c')]);
    expect((await table.rows()).map(({ id }) => id)).toEqual(['a', 'b', 'c']);
    await expect(pool.atOnce([plain('UPDATE nothing SET n = 1'), insert('e')])).rejects.toMatchObject({
      code: '42P01',
    });
    expect((await pool.send<{ n: number }>('SELECT count(*) AS n FROM things', [])).rows).toEqual([{ n: 3 }]);
  });

  test('a statement that must change a row and finds none undoes them all', async () => {
    const table = await openTable();
    const pool = openPool(table.url);
    await pool.atOnce([insert('a')]);
    const renamed = (id: string) => change('UPDATE things SET label = @label WHERE id = @id', { id, label: 'new' });
    const failed = pool.atOnce([insert('b'), renamed('a'), renamed('gone')]);
    await expect(failed.catch((error: unknown) => isNothingChanged(error))).resolves.toBe(true);
    expect(await table.rows()).toEqual([{ id: 'a', n: '1', label: null }]);
    await pool.atOnce([insert('b'), renamed('a')]);
    expect(await table.rows()).toMatchObject([{ label: 'new' }, { label: null }]);
  });

  test('a text array in binary form arrives as it is, at once and alone', async () => {
    const pool = openPool((await openTable()).url);
    const texts = [
      'plain',
      'a "quote", a \\ and {braces}',
      null,
      '',
      'NULL',
      'null',
      'é 漢 😀',
      'line\nbreak',
      'nul\0',
    ];
    const statement = 'SELECT to_json(CAST(? AS text[])) AS texts';
    const expected = texts.map((text) => text?.replace('\0', '\uFFFD') ?? null);
    const answers: unknown[] = [];
    const take = ({ rows }: { readonly rows: readonly object[] }) => void answers.push(...rows);
    await pool.atOnce([{ ...plain(statement, [encodeTextArray(texts)]), take }]);
    answers.push(...(await pool.send(statement, [encodeTextArray(texts)])).rows);
    expect(answers).toEqual([{ texts: expected }, { texts: expected }]);
  });

  test('values arrive as they are with one statement alone, and answers are read after the commit', async () => {
    const table = await openTable();
    const pool = openPool(table.url);
    const labels = ['plain', 'a "quote", a \\ and {braces}', null, '', 'NULL', 'line\nbreak', 'nul\0'];
    const answers: unknown[] = [];
    const take = ({ rows }: { readonly rows: readonly object[] }) => void answers.push(...rows);
    const many = `INSERT INTO things (id, n, label)
      SELECT r.id, r.n, r.label FROM unnest(CAST(? AS text[]), CAST(? AS bigint[]), CAST(? AS text[])) AS r (id, n, label)`;
    await pool.atOnce([
      plain(many, [labels.map((_, i) => `m${i}`), labels.map((_, i) => BigInt(i)), labels]),
      { ...plain('UPDATE things SET n = n + 1 WHERE id = ? RETURNING id, n, label IS NULL AS bare', ['m2']), take },
      { ...plain('UPDATE things SET n = n WHERE id = ? RETURNING label', ['m1']), take },
    ]);
    expect(answers).toEqual([{ id: 'm2', n: 3, bare: 1 }, { label: labels[1] }]);
    const stored = labels.map((label) => label?.replace('\0', '\uFFFD') ?? null);
    expect((await table.rows()).map(({ label }) => label)).toEqual(stored);
  });

  // Promise 16.5: a node that stops or is cut off while a commit is on its way holds no row of it.
  test('a sending that stops among its values holds no row', async () => {
    const table = await openTable();
    const gate = await startGate(table.url);
    const pool = openPool(through(table.url, gate));
    await pool.atOnce([insert('a')]);
    const renamed = change('UPDATE things SET label = @label WHERE id = @id', { id: 'a', label: 'cut' });
    const LARGE = 1_000_000;
    gate.stopAfter(LARGE / 2);
    const cut = pool.atOnce([renamed, insert('b', 'x'.repeat(LARGE))]);
    cut.catch(() => {});
    await until(() => gate.hasStopped());
    const other = openPool(table.url);
    await other.atOnce([
      plain('SET LOCAL lock_timeout = 2000'),
      change("UPDATE things SET label = 'free' WHERE id = 'a'"),
    ]);
    expect(await table.rows()).toEqual([{ id: 'a', n: '1', label: 'free' }]);
    gate.close();
    await expect(cut).rejects.toThrow();
  });
});

interface Gate {
  readonly port: number;
  /** Passes on this many bytes more, and nothing after them. */
  stopAfter(bytes: number): void;
  hasStopped(): boolean;
  /** Ends all connections. */
  close(): void;
}

async function startGate(address: string): Promise<Gate> {
  let left = Number.POSITIVE_INFINITY;
  const sockets = new Set<net.Socket>();
  const server = net.createServer((near) => {
    const far = net.connect(targetOf(address));
    for (const socket of [near, far]) sockets.add(socket.on('error', () => {}));
    near.on('data', (bytes) => {
      far.write(bytes.subarray(0, Math.min(left, bytes.length)));
      left = Math.max(0, left - bytes.length);
    });
    far.on('data', (bytes) => near.write(bytes));
    near.on('close', () => far.destroy());
    far.on('close', () => near.destroy());
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const close = () => {
    for (const socket of sockets) socket.destroy();
    server.close();
  };
  onTestFinished(close);
  return {
    port: (server.address() as net.AddressInfo).port,
    stopAfter(bytes) {
      left = bytes;
    },
    hasStopped: () => left === 0,
    close,
  };
}
