// What the commands say of files they cannot use: one line that names the file, and no start that hides it.
import fs from 'node:fs';
import path from 'node:path';
import Database from 'better-sqlite3';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { newDatabase } from '../support/new-database.ts';
import { runHere, startHere } from './here.ts';
import { address, temporaryHome } from './metis.ts';

let home: ReturnType<typeof temporaryHome>;
let data: string;
beforeEach(() => {
  home = temporaryHome();
  data = path.join(home.path, '.metis');
  fs.mkdirSync(data);
});
afterEach(() => home.remove());

const metis = (...args: string[]) => runHere(args, { home: home.path });
const port = ['--port', '0'];
async function served(...args: string[]) {
  const server = startHere(['serve', ...port, ...args], { home: home.path });
  try {
    return { url: await address(server), ...(await server.stop()) };
  } finally {
    await server.stop();
  }
}

describe('a routing file in the data folder', () => {
  const file = () => path.join(data, 'routing.yaml');

  it('that is broken is named by start, config check and doctor, each with its fault', async () => {
    fs.writeFileSync(file(), 'schema_version: 1\nrules:\n  - { name: a, when: { nope: 1 }, use: haiku }\n');
    const fault = new RegExp(`${file()}: rules\\[0\\].*nope`);
    expect((await served()).stderr).toMatch(fault);
    const checked = await metis('config', 'check');
    expect(checked).toMatchObject({ code: 1, stdout: '', stderr: expect.stringMatching(fault) });
    const doctor = await metis('doctor', ...port);
    expect(doctor).toMatchObject({ code: 1, stdout: expect.stringMatching(new RegExp(`error +${fault.source}`)) });
  });

  it('that asks for a model without a key is a warning at the start and in doctor', async () => {
    fs.writeFileSync(file(), 'schema_version: 1\nglobal_default: haiku\n');
    expect((await served()).stderr).toMatch(/"level":"warn".*routing\.yaml: global_default: .*no credentials here/);
    expect((await metis('config', 'check')).code).toBe(0);
    const doctor = await metis('doctor', ...port);
    expect(doctor).toMatchObject({
      code: 0,
      stdout: expect.stringMatching(/warning +\S+routing\.yaml: global_default/),
    });
  });

  it('that is in order is said to be so', async () => {
    fs.writeFileSync(file(), 'schema_version: 1\n');
    expect((await metis('doctor', ...port)).stdout).toContain(`ok       routing rules ${file()}`);
  });
});

describe('a database', () => {
  const file = () => path.join(data, 'metis.db');
  const sql = (...statements: string[]) => {
    const db = new Database(file());
    for (const statement of statements) db.exec(statement);
    db.close();
  };
  const page = 4096;
  const broken: [string, RegExp, () => Promise<void> | void][] = [
    ['no database at all', /not a readable database/, () => fs.writeFileSync(file(), 'x'.repeat(10_000))],
    [
      'a database cut short',
      /database_corrupt/,
      () => {
        newDatabase(file());
        fs.truncateSync(file(), Math.floor(fs.statSync(file()).size / 2 / page) * page);
      },
    ],
    [
      'a database with a damaged page',
      /database_corrupt/,
      () => {
        newDatabase(file());
        const db = new Database(file());
        const root = db
          .prepare("SELECT rootpage FROM sqlite_master WHERE name = 'ledger_calls'")
          .pluck()
          .get() as number;
        db.close();
        const fd = fs.openSync(file(), 'r+');
        fs.writeSync(fd, Buffer.alloc(page, 0xff), 0, page, (root - 1) * page);
        fs.closeSync(fd);
      },
    ],
    ["another program's database", /tables of another program/, () => sql('CREATE TABLE recipes (id)')],
    [
      "another program's database with a version of its own",
      /tables of another program/,
      () => sql('CREATE TABLE recipes (id)', 'PRAGMA user_version = 1'),
    ],
    [
      'a database of a newer version',
      /schema_too_new/,
      () => {
        newDatabase(file());
        sql('PRAGMA user_version = 9999');
      },
    ],
  ];
  it.each(broken)('%s is an error of doctor and one line of every command', async (_, fault, make) => {
    await make();
    const before = fs.readFileSync(file());
    const doctor = await metis('doctor', ...port);
    expect(doctor).toMatchObject({ code: 1, stderr: '' });
    const found = doctor.stdout.split('\n').filter((line) => line.startsWith('error'));
    expect(found).toHaveLength(1);
    expect(found[0]).toMatch(fault);
    expect(found[0]).toContain(file());
    for (const args of [
      ['rollups', 'verify'],
      ['rollups', 'rebuild'],
      ['prune', '--days', '1'],
    ]) {
      const { code, stdout, stderr } = await metis(...args);
      // A page that a command does not read cannot stop it.
      if (args[0] === 'prune' && code === 0) continue;
      expect({ args, code, stdout, lines: stderr.split('\n').length }).toEqual({ args, code: 1, stdout: '', lines: 2 });
      expect(stderr).toMatch(/^metis: (database_corrupt|schema_too_new): /);
      expect(stderr).toContain(file());
    }
    expect(fs.readFileSync(file()).equals(before)).toBe(true);
  });

  it('that is sound, or not there yet, is no error, and doctor changes nothing', async () => {
    expect((await metis('doctor', ...port)).code).toBe(0);
    expect(fs.existsSync(file())).toBe(false);
    newDatabase(file());
    const before = fs.readFileSync(file());
    expect((await metis('doctor', ...port)).code).toBe(0);
    expect(fs.readFileSync(file()).equals(before)).toBe(true);
  });
});

describe('a server.yaml', () => {
  it.each([
    ['an alias nobody defined', 'server: *nowhere\n'],
    ['broken syntax', 'server: {\n'],
  ])('with %s is named', async (_, text) => {
    const file = path.join(data, 'server.yaml');
    fs.writeFileSync(file, text);
    const { code, stdout, stderr } = await metis('config', 'check');
    expect({ code, stdout }).toEqual({ code: 1, stdout: '' });
    for (const line of stderr.trimEnd().split('\n')) expect(line).toContain(`metis: ${file}: `);
  });
});
