// `metis reconcile` on a real database and, as a process, on a real server; exports are made from the calls themselves (22 §6).
import fs from 'node:fs';
import path from 'node:path';
import { beforeEach, describe, expect, it, onTestFinished } from 'vitest';
import { openWorld, type SqliteWorld } from '../analytics/world.ts';
import {
  CALLS,
  DAY_MS,
  dayName,
  EXPORTS,
  HAIKU,
  NOON,
  page,
  prices,
  SONNET,
  type Sum,
  sums,
} from '../support/provider-exports.ts';
import { runHere, startHere } from './here.ts';
import { address } from './metis.ts';

let world: SqliteWorld;
beforeEach(() => {
  world = openWorld();
});

async function fill(): Promise<void> {
  const session = await world.planner();
  await world.record(
    CALLS.map(({ day, model, tokens }) => ({ session, at: NOON + day * DAY_MS, model, prices, tokens })),
  );
}

function write(name: string, text: string | Buffer): string {
  const file = path.join(world.folder, name);
  fs.writeFileSync(file, text);
  return file;
}

const metis = (...args: string[]) => runHere(args, { home: world.folder });
const reconcile = (...args: string[]) => metis('reconcile', '--data', world.folder, ...args);
async function compare(text: string, ...flags: string[]) {
  const { code, stdout, stderr } = await reconcile(write('export', text), '--json', ...flags);
  return { code, stderr, ...JSON.parse(stdout || '{}') };
}

describe('an export that was made from the calls', () => {
  // Promise 22.11: exports made from the ledger agree with it: exit code 0.
  it('agrees with the ledger in every form, and nothing is changed', async () => {
    await fill();
    world.close();
    const database = path.join(world.folder, 'metis.db');
    const before = fs.readFileSync(database);
    const { anthropicUsage, anthropicCost, openaiUsage, openaiCost, openrouter, ...others } = EXPORTS;
    // Two forms of one kind would be added up.
    const { openrouterCalls, ...tables } = others;
    for (const forms of [
      { anthropicUsage, anthropicCost, openaiUsage, openaiCost, openrouter },
      { ...tables, openrouterCalls },
    ]) {
      const files = Object.entries(forms).map(([name, build]) => write(name, build()));
      const { code, stdout, stderr } = await reconcile(...files);
      expect({ code, stderr, stdout }).toMatchObject({ code: 0, stderr: '' });
      expect(stdout).toMatch(/^All \d+ sums agree within 0\.1 %\.$/m);
    }
    expect(fs.readFileSync(database).equals(before)).toBe(true);
  });

  it('is held against a running server too', async () => {
    await fill();
    world.close();
    const server = startHere(['serve', '--port', '0', '--data', world.folder], { home: world.folder });
    onTestFinished(async () => {
      await server.stop();
    });
    const url = await address(server);
    const good = write('good.json', EXPORTS.anthropicUsage());
    const [first, ...others] = sums('anthropic');
    const bad = write('bad.json', EXPORTS.anthropicUsage([{ ...first!, output_tokens: 1 }, ...others]));
    const elsewhere = fs.mkdtempSync(path.join(world.folder, 'empty-'));
    const ask = (...args: string[]) => runHere(['reconcile', ...args, '--server', url], { home: elsewhere });
    expect(await ask(good)).toMatchObject({ code: 0 });
    const { code, stdout } = await ask(bad);
    expect(code).toBe(1);
    expect(stdout).toContain(first!.model);
    await server.stop();
    expect(await ask(good)).toMatchObject({ code: 2, stdout: '' });
  });
});

describe('a difference', () => {
  // Promise 22.11: a changed sum of a day and model is named: exit code 1.
  it('is named with its day, model and class where one sum was changed', async () => {
    await fill();
    const rows = sums('anthropic').map((sum) =>
      sum.day === 1 && sum.model === HAIKU ? { ...sum, output_tokens: sum.output_tokens + 500 } : sum,
    );
    const { code, differences } = await compare(EXPORTS.anthropicUsage(rows));
    expect(code).toBe(1);
    expect(differences).toEqual([
      {
        export: 'Anthropic usage',
        day: dayName(1),
        model: HAIKU,
        class: 'output',
        unit: 'tokens',
        billed: 2322,
        ledger: 1822,
        difference: 500,
        reasons: ['calls outside this server'],
      },
    ]);
    const table = await reconcile(write('table.json', EXPORTS.anthropicUsage(rows)));
    expect(table.code).toBe(1);
    expect(table.stdout).toMatch(/2026-05-21 +anthropic:claude-haiku-4-5 +output +2,322 +1,822 +\+500 +calls outside/);
    expect(table.stdout).toMatch(/^1 of 40 sums differ by more than 0\.1 %\.$/m);
  });

  // Promise 22.11: a sum that moved by a day is named as such: exit code 1.
  it('is a day border where a part moved by a day, on both days', async () => {
    await fill();
    const moved = CALLS.map((call, i) =>
      call.model === SONNET && call.day === 1 && i % 2 ? { ...call, day: 2 } : call,
    );
    const { code, differences } = await compare(EXPORTS.anthropicCost(sums('anthropic', moved)));
    expect(code).toBe(1);
    expect(differences).toMatchObject([
      { day: dayName(1), model: SONNET, class: 'cost of tokens', reasons: ['day border'] },
      { day: dayName(2), model: SONNET, class: 'cost of tokens', reasons: ['day border'] },
    ]);
  });

  // Promise 22.11: a day and model that the export lacks is named: exit code 1.
  it('is named where the export lacks a day of a model, a whole model, or the first day', async () => {
    await fill();
    const without = (gone: (sum: Sum) => boolean) => sums('anthropic').filter((sum) => !gone(sum));
    const day = await compare(EXPORTS.anthropicCost(without((sum) => sum.day === 3 && sum.model === HAIKU)));
    expect(day).toMatchObject({
      code: 1,
      differences: [{ day: dayName(3), model: HAIKU, billed: '0', reasons: ['not in the export'] }],
    });
    const model = await compare(EXPORTS.anthropicCostCsv(without((sum) => sum.model === HAIKU)));
    expect(model.code).toBe(1);
    expect(model.differences.map((one: { day: string; model: string }) => [one.day, one.model])).toEqual(
      [0, 1, 2, 3].map((n) => [dayName(n), HAIKU]),
    );
    // A table of rows does not say where it begins.
    const later = EXPORTS.anthropicUsageCsv(without((sum) => sum.day === 0));
    expect(await compare(later)).toMatchObject({ code: 0 });
    const since = await compare(later, '--since', dayName(0));
    expect(since.code).toBe(1);
    expect(new Set(since.differences.map((one: { day: string }) => one.day))).toEqual(new Set([dayName(0)]));
    expect(await compare(EXPORTS.anthropicUsage(without((sum) => sum.day === 0)), '--since', dayName(1))).toMatchObject(
      {
        code: 0,
      },
    );
  });
});

describe('a file that cannot be compared', () => {
  it('is told in one line: no export, one that is there twice, a folder, or none; and no database', async () => {
    const { code, stdout, stderr } = await reconcile(write('bad', '{"data": [{"a": 1}]}'));
    expect({ code, stdout }).toEqual({ code: 2, stdout: '' });
    expect(stderr).toMatch(/^metis: .*bad: is no export that is known[^\n]+\n$/);
    const large = await reconcile(write('large', Buffer.alloc(33_554_433, ' ')));
    expect(large).toMatchObject({ code: 2, stderr: expect.stringContaining('more than 33554432 bytes') });
    expect((await reconcile('x', '--tolerance', '101')).code).toBe(2);
    const file = write('a.json', EXPORTS.anthropicUsage());
    const copy = write('b.json', EXPORTS.anthropicUsage());
    expect(await reconcile(file, copy)).toMatchObject({
      code: 2,
      stderr: expect.stringContaining('has the content of'),
    });
    expect(await reconcile(world.folder)).toMatchObject({ code: 2, stderr: expect.stringContaining('EISDIR') });
    expect(await reconcile('nope.json')).toMatchObject({ code: 2, stderr: expect.stringContaining('ENOENT') });
    const empty = fs.mkdtempSync(path.join(world.folder, 'empty-'));
    expect(await metis('reconcile', file, '--data', empty)).toMatchObject({
      code: 2,
      stderr: expect.stringContaining('there is no database'),
    });
    expect(fs.readdirSync(empty)).toEqual([]);
  });

  it('says that there are more pages', async () => {
    await fill();
    const whole = JSON.parse(EXPORTS.openaiUsage());
    const [first, second] = [whole.data.slice(0, 2), whole.data.slice(2)];
    const open = write('1.json', page(first, true));
    const one = await reconcile(open);
    expect(one).toMatchObject({ code: 0, stderr: expect.stringContaining('OpenAI usage') });
    expect(await reconcile(open, write('2.json', page(second)))).toMatchObject({ code: 0, stderr: '' });
  });
});
