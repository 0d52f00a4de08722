// `metis prices update` and `metis models update`, and a running server that takes them at SIGHUP (22 §5).
import fs from 'node:fs';
import http from 'node:http';
import type { AddressInfo } from 'node:net';
import path from 'node:path';
import { afterEach, beforeEach, describe, expect, it, onTestFinished } from 'vitest';
import { until } from '../support/until.ts';
import { runHere, type StartedHere, startHere } from './here.ts';
import {
  address,
  getJson,
  HAS_TERMINAL,
  MAIN,
  NODE_FLAGS,
  programOnTerminal,
  ROOT,
  run,
  start,
  temporaryHome,
} from './metis.ts';

let home: ReturnType<typeof temporaryHome>;
beforeEach(() => {
  home = temporaryHome();
});
afterEach(() => home.remove());

const dataFile = (name: string) => path.join(home.path, '.metis', name);
const metis = (...args: string[]) => runHere(args, { home: home.path });
const update = (...args: string[]) => metis('prices', 'update', ...args);

function write(name: string, content: unknown): string {
  const file = path.join(home.path, name);
  fs.writeFileSync(file, typeof content === 'string' ? content : JSON.stringify(content));
  return file;
}

const rates = (input: string, output: string) => ({ input_per_mtok_usd: input, output_per_mtok_usd: output });
const TODAY = new Date().toISOString().slice(0, 10);
const table = (models: object, over: object = {}) => ({
  pricing_version: 'next',
  imported_on: TODAY,
  models,
  ...over,
});

async function serve(): Promise<{ readonly url: string; readonly server: StartedHere }> {
  const server = startHere(['serve', '--port', '0'], { home: home.path });
  onTestFinished(async () => {
    await server.stop();
  });
  return { url: await address(server), server };
}

/** The completed calls of one task. */
async function callModel(): Promise<{ readonly cost_usd: string; readonly pricing_version: string }[]> {
  const { stdout } = await metis('run', 'say hello', '--json', '--model', 'scripted:balanced');
  const events = stdout
    .trim()
    .split('\n')
    .map((line) => JSON.parse(line));
  return events.filter(({ type }) => type === 'llm.call_completed').map(({ payload }) => payload);
}

type Row = { readonly cost_usd: string; readonly pricing_version: string };

/** Cost and version of every call, those of the newest session first. */
async function listRows(url: string): Promise<[cost: string, version: string][]> {
  const { sessions } = await getJson(`${url}/sessions`);
  const rows = await Promise.all(
    sessions.map(async ({ id }: { id: string }) => {
      const { events } = await getJson(`${url}/sessions/${id}/events?limit=500`);
      return events
        .filter(({ type }: { type: string }) => type === 'llm.call_completed')
        .map(({ payload }: { payload: Row }) => [payload.cost_usd, payload.pricing_version]);
    }),
  );
  return rows.flat();
}

describe('metis prices update', () => {
  // Promise 22.9: a table with one wrong rate is refused whole, naming the entry.
  it('refuses a table with one wrong rate, naming its entry, and writes nothing', async () => {
    const file = write('bad.json', table({ 'scripted:fast': rates('1', '2'), 'scripted:deep': rates('1', '-2') }));
    const { code, stdout, stderr } = await update('--from', file, '--yes');
    expect({ code, stdout }).toEqual({ code: 1, stdout: '' });
    expect(stderr.trim().split('\n')).toEqual([
      expect.stringMatching(/^metis: .*bad\.json: scripted:deep: output_per_mtok_usd: must be /),
    ]);
    expect(fs.existsSync(dataFile('prices-update.json'))).toBe(false);
  });

  // Promise 22.9: a good table is shown as a difference and written; without a terminal only with --yes.
  it('shows what changes, writes with --yes alone where there is no terminal, and exits 3 where nothing changes', async () => {
    const models = {
      'scripted:deep': rates('500', '2500'),
      'scripted:fast': { ...rates('0.1', '0.5'), cached_read_per_mtok_usd: '0.01' },
      'scripted:balanced': rates('1', '100'),
      'openai:gpt-next': rates('1', '1'),
    };
    const file = write('next.json', table(models));
    const shown = [
      'added: openai:gpt-next',
      'more expensive: scripted:deep',
      'cheaper: scripted:fast',
      'changed: scripted:balanced',
    ];
    const asked = await update('--from', file);
    expect(asked.code).toBe(2);
    expect(asked.stdout.split('\n').slice(0, 4)).toEqual(shown);
    expect(asked.stderr).toContain('--yes');
    expect(fs.existsSync(dataFile('prices-update.json'))).toBe(false);

    expect(await update('--from', file, '--yes')).toMatchObject({ code: 0, stdout: asked.stdout });
    expect(fs.statSync(dataFile('prices-update.json')).mode & 0o077).toBe(0);
    expect(await update('--from', file, '--yes')).toMatchObject({ code: 3 });
    const without = await update('--yes');
    expect(without).toMatchObject({ code: 2, stderr: expect.stringContaining('pricing.update_url') });
    const configured = ['--set', `pricing.update_url=http://127.0.0.1:1/prices.json`];
    expect(await update('--yes', ...configured)).toMatchObject({
      code: 1,
      stderr: expect.stringContaining('127.0.0.1:1'),
    });
  });

  it('replaces a table that is broken, and tells in one line where none can be written', async () => {
    fs.mkdirSync(dataFile(''), { mode: 0o700 });
    fs.writeFileSync(dataFile('prices-update.json'), '{"pricing_version": ');
    fs.writeFileSync(dataFile('models-update.json'), '[]');
    const file = write('next.json', table({ 'openai:gpt-next': rates('1', '1') }));
    expect(await update('--from', file, '--yes')).toMatchObject({
      code: 0,
      stdout: expect.stringMatching(/^added: openai:gpt-next/),
    });
    const capabilities = { max_context_tokens: 9000, max_output_tokens: 900 };
    const models = write('models.json', { models: { 'anthropic:claude-next': { capabilities } } });
    expect(await metis('models', 'update', '--from', models, '--yes')).toMatchObject({ code: 0 });
    expect(await metis('config', 'check')).toMatchObject({ code: 0 });

    const refused = await update('--from', file, '--yes', '--data', path.join(file, 'data'));
    expect(refused).toMatchObject({
      code: 1,
      stderr: expect.stringMatching(/^metis: .*prices-update\.json: cannot be written: E\w+\n$/),
    });
    const folder = path.join(home.path, 'taken');
    fs.mkdirSync(path.join(folder, 'prices-update.json', 'x'), { recursive: true });
    expect(await update('--from', file, '--yes', '--data', folder)).toMatchObject({
      code: 1,
      stderr: expect.stringMatching(/cannot be written: E\w+\n$/),
    });
    expect(fs.readdirSync(folder)).toEqual(['prices-update.json']);
  });

  it.runIf(fs.existsSync('/proc/self'))('ends with one line where no data folder can be made', async () => {
    const file = write('next.json', table({ 'openai:gpt-next': rates('1', '1') }));
    const models = write('models.json', {
      models: { 'scripted:new': { capabilities: { max_context_tokens: 9000, max_output_tokens: 900 } } },
    });
    const data = ['--yes', '--data', '/proc/self/x'];
    for (const [kind, from] of Object.entries({ prices: file, models })) {
      const { code, stderr } = await metis(kind, 'update', '--from', from, ...data);
      expect({ code, stderr }).toEqual({
        code: 1,
        stderr: `metis: /proc/self/x/${kind}-update.json: cannot be written: ENOENT\n`,
      });
    }
    const serving = [
      '--port',
      '0',
      '--data',
      '/proc/self/x',
      '--set',
      `storage.db_path=${home.path}/elsewhere/metis.db`,
    ];
    const refused = await metis('serve', ...serving);
    expect(refused.code).toBe(1);
    expect(refused.stderr).toMatch(/^metis: data_folder_unwritable: \/proc\/self\/x cannot be made [^\n]+\n$/m);
  });

  it('writes into the data folder that is named in front of or behind the word update', async () => {
    const list = write('models.json', {
      models: { 'scripted:new': { capabilities: { max_context_tokens: 9000, max_output_tokens: 900 } } },
    });
    const [one, two] = ['one', 'two'].map((name) => path.join(home.path, name));
    expect(await metis('models', 'update', '--from', list, '--yes', '--data', one!)).toMatchObject({ code: 0 });
    expect(await metis('models', '--data', two!, 'update', '--from', list, '--yes')).toMatchObject({ code: 0 });
    expect([one, two].map((folder) => fs.readdirSync(folder!))).toEqual([
      ['models-update.json'],
      ['models-update.json'],
    ]);
    expect(fs.existsSync(dataFile(''))).toBe(false);
  });

  it('refuses a day of the future, which would win over every list to come', async () => {
    const entry = { capabilities: { max_context_tokens: 9000, max_output_tokens: 900 } };
    const day = '2999-01-01';
    const prices = write('next.json', table({ 'openai:gpt-next': rates('1', '1') }, { imported_on: day }));
    const models = write('models.json', { updated_on: day, models: { 'scripted:new': entry } });
    const answers = [
      await update('--from', prices, '--yes'),
      await metis('models', 'update', '--from', models, '--yes'),
    ];
    expect(answers.map(({ code }) => code)).toEqual([1, 1]);
    expect(answers.map(({ stderr }) => stderr)).toEqual([
      expect.stringMatching(/^metis: .*next\.json: imported_on: 2999-01-01 is in the future; .+\n$/),
      expect.stringMatching(/^metis: .*models\.json: updated_on: 2999-01-01 is in the future; .+\n$/),
    ]);
    expect(fs.existsSync(dataFile(''))).toBe(false);
  });

  it('prints no credentials and no parameters of an address, and takes none of the first', async () => {
    const server = http.createServer((request, response) => {
      if (request.url === '/prices.json?key=secret') response.end('[]');
      else response.writeHead(404).end();
    });
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    onTestFinished(() => {
      server.close();
    });
    const host = `127.0.0.1:${(server.address() as AddressInfo).port}`;
    const read = await update('--from', `http://${host}/prices.json?key=secret`, '--yes');
    expect(read).toMatchObject({ code: 1, stderr: expect.stringContaining(`http://${host}/prices.json: `) });
    expect(read.stderr).not.toContain('secret');
    const places = [
      `http://user:secret@${host}/x`,
      `ftp://user:secret@${host}/x`,
      `user:secret@${host}/x`,
      'http://:secret@',
    ];
    const addressed = await runHere(['doctor', '--port', '0'], {
      home: home.path,
      env: { OPENAI_BASE_URL: `http://user:secret@${host}/v1` },
    });
    expect(addressed.stdout).toContain(`http://${host}/v1`);
    expect(addressed.stdout).not.toContain('secret');
    const registry = write(
      'registry.yaml',
      `adapters: { a: { type: openai, base_url: "http://user:secret@${host}" } }\nmodels: {}\n`,
    );
    for (const pair of [`registry.path=${registry}`, `cluster.advertise_url=http://user:secret@${host}`]) {
      const { code, stdout, stderr } = await metis('config', 'check', '--set', pair);
      expect([code, stdout + stderr]).toEqual([1, expect.stringContaining('without user and password')]);
      expect(stdout + stderr).not.toContain('secret');
    }
    for (const place of places) {
      const commands = [
        ['prices', 'update', '--from', place],
        ['prices', 'update', '--set', `pricing.update_url=${place}`],
        ['models', 'update', '--from', place],
        ['sessions', '--server', place],
        ['config', 'check', '--set', `server.url=${place}`],
      ];
      for (const words of commands) {
        const { code, stdout, stderr } = await metis(...words);
        expect([words, code]).toEqual([words, expect.toSatisfy((one) => one !== 0)]);
        expect(stdout + stderr).not.toContain('secret');
      }
    }
  });

  it('removes what an update left that was killed, and nothing of one that is running', async () => {
    fs.mkdirSync(dataFile(''), { mode: 0o700 });
    const ended = start(['--version'], { home: home.path });
    await ended.finished;
    const drafts = [`prices-update.json.${ended.child.pid}.tmp`, `models-update.json.${ended.child.pid}.tmp`];
    const kept = [`prices-update.json.${process.pid}.tmp`, 'prices-update.json.tmp', 'notes.1.tmp'];
    for (const name of [...drafts, ...kept]) fs.writeFileSync(dataFile(name), '{');
    const file = write('next.json', table({ 'openai:gpt-next': rates('1', '1') }));
    // In this process its own file would be the one that is kept.
    expect(await run(['prices', 'update', '--from', file, '--yes'], { home: home.path })).toMatchObject({ code: 0 });
    expect(fs.readdirSync(dataFile('')).sort()).toEqual([...kept, 'prices-update.json'].sort());
  });

  // Promise 22.9: the default address is asked by the command alone, and what it took holds from the next start on.
  it('takes a table from pricing.update_url, which nothing else asks', async () => {
    const asked: string[] = [];
    const server = http.createServer((request, response) => {
      asked.push(`${request.method} ${request.url}`);
      response.end(JSON.stringify(table({ 'openai:gpt-next': rates('1', '1') })));
    });
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    onTestFinished(() => {
      server.close();
    });
    const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}/prices.json`;
    fs.mkdirSync(dataFile(''), { mode: 0o700 });
    fs.writeFileSync(dataFile('server.yaml'), `pricing: { update_url: ${JSON.stringify(url)} }\n`);
    expect(await metis('doctor', '--port', '0')).toMatchObject({ code: 0 });
    const before = await serve();
    before.server.signal('SIGHUP');
    const { active_version: old } = await getJson(`${before.url}/pricing`);
    await before.server.stop();
    expect(asked).toEqual([]);
    expect(await update('--yes')).toMatchObject({
      code: 0,
      stdout: expect.stringMatching(/^added: openai:gpt-next$/m),
    });
    expect(asked).toEqual(['GET /prices.json']);
    const after = await serve();
    const { active_version } = await getJson(`${after.url}/pricing`);
    expect(active_version).toMatch(/\+next-[0-9a-f]{8}$/);
    expect(active_version.startsWith(old)).toBe(true);
    expect(asked).toHaveLength(1);
  });

  it('an older table changes no price that the package has', async () => {
    const file = write('old.json', table({ 'scripted:deep': rates('1', '1') }, { imported_on: '2020-01-01' }));
    expect(await update('--from', file, '--yes')).toMatchObject({ code: 3 });
  });

  it('reads no more of an address or a file than its limits', async () => {
    const body = Buffer.alloc(65_536, ' ');
    const server = http.createServer((request, response) => {
      if (request.url === '/deep') response.end('['.repeat(100_000));
      else if (request.url === '/gone') response.writeHead(404).end('{}');
      else {
        const more = () => {
          while (response.write(body));
        };
        response.on('drain', more);
        more();
      }
    });
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    onTestFinished(() => {
      server.closeAllConnections();
      server.close();
    });
    const origin = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
    const reasons = { endless: 'has more than 4194304 bytes', deep: 'nested deeper than 20', gone: 'HTTP status 404' };
    for (const [page, reason] of Object.entries(reasons)) {
      const { code, stderr } = await update('--from', `${origin}/${page}`, '--yes');
      expect({ code, stderr }).toEqual({ code: 1, stderr: expect.stringContaining(reason) });
    }
    const { code, stderr } = await update('--from', write('large.json', ' '.repeat(4_194_305)), '--yes');
    expect({ code, stderr }).toEqual({ code: 1, stderr: expect.stringContaining(reasons.endless) });
    expect(fs.existsSync(dataFile('prices-update.json'))).toBe(false);
  });

  // Promise 22.9: killed while writing, the old or the new table is there, whole.
  it('leaves the old or the new table, whole, when it is killed while it writes', async () => {
    const many = (rate: string) =>
      Object.fromEntries(Array.from({ length: 8000 }, (_, i) => [`openai:m${i}`, rates(rate, rate)]));
    const [a, b] = ['1', '2'].map((rate) => write(`${rate}.json`, table(many(rate))));
    expect(await update('--from', a!, '--yes')).toMatchObject({ code: 0 });
    let cut = 0;
    let stored = '1';
    for (let round = 0; round < 4; round++) {
      const from = stored === '1' ? b! : a!;
      const writing = start(['prices', 'update', '--yes', '--from', from], { home: home.path });
      const watcher = fs.watch(path.dirname(dataFile('prices-update.json')), (_, name) => {
        if (name?.endsWith('.tmp')) writing.child.kill('SIGKILL');
      });
      if ((await writing.finished).code === null) cut++;
      watcher.close();
      const { models } = JSON.parse(fs.readFileSync(dataFile('prices-update.json'), 'utf8'));
      const found = new Set(Object.values<{ input_per_mtok_usd: string }>(models).map((one) => one.input_per_mtok_usd));
      expect([Object.keys(models).length, found.size]).toEqual([8000, 1]);
      [stored] = [...found] as [string];
    }
    expect(cut).toBeGreaterThan(0);
    expect(await metis('doctor', '--port', '0')).toMatchObject({ code: 0 });
  });
});

describe('a running server', () => {
  // Promise 22.9: a running server stamps the new version after SIGHUP, and changes no old row.
  it('stamps the new version after SIGHUP, stored before its first call, and changes no old row', async () => {
    const { url, server } = await serve();
    const [before] = await callModel();
    const { active_version: old } = await getJson(`${url}/pricing`);
    expect(before).toMatchObject({ pricing_version: old });
    const dear = { 'scripted:balanced': rates('300', '1500') };
    await update('--from', write('next.json', table(dear)), '--yes');
    expect((await callModel())[0]).toMatchObject({ pricing_version: old });

    const oldRows = await listRows(url);
    server.signal('SIGHUP');
    await until(async () => (await getJson(`${url}/pricing`)).active_version !== old);
    const { active_version: next, versions, table: active } = await getJson(`${url}/pricing`);
    expect(next).toMatch(new RegExp(`^${old.replaceAll('.', '\\.')}\\+next-[0-9a-f]{8}$`));
    expect(versions.map((one: { version: string }) => one.version)).toEqual([next, old]);
    expect(active.models['scripted:balanced'].output_per_mtok_usd).toBe('1500');
    const [after] = await callModel();
    expect(after).toMatchObject({ pricing_version: next });
    expect(Number(after!.cost_usd)).toBeGreaterThan(Number(before!.cost_usd) * 50);

    const rows = await listRows(url);
    expect(rows.slice(-oldRows.length)).toEqual(oldRows);
    expect(new Set(rows.slice(0, -oldRows.length).map(([, version]) => version))).toEqual(new Set([next]));
  });

  it('keeps what is active when a file is wrong at SIGHUP, and says so', async () => {
    const { url, server } = await serve();
    const { active_version } = await getJson(`${url}/pricing`);
    fs.writeFileSync(dataFile('prices-update.json'), '{"pricing_version": "x", "models": {"a:b": {}}}');
    server.signal('SIGHUP');
    await until(() => server.output.stderr.includes('what was active stays active'));
    expect(server.output.stderr).toContain('a:b: input_per_mtok_usd');
    expect((await getJson(`${url}/pricing`)).active_version).toBe(active_version);
  });

  const words = [process.execPath, ...NODE_FLAGS, MAIN, 'serve', '--port', '0'];
  it.skipIf(!HAS_TERMINAL).each([
    ['its terminal is closed', words, 'SIGKILL'],
    // A shell that has more to do does not become what it starts; it ends first.
    ['the shell ends that started it, and the terminal behind it', ['sh', '-c', '"$@"; :', 'sh', ...words], 'SIGTERM'],
  ] as const)('ends where %s', async (_, program, signal) => {
    const terminal = programOnTerminal(program, { home: home.path });
    await terminal.seen(/listens on/);
    const { pid } = JSON.parse(fs.readFileSync(dataFile('server.json'), 'utf8'));
    terminal.stop(signal);
    await until(() => {
      try {
        return !process.kill(pid, 0);
      } catch {
        return true;
      }
    });
    expect(fs.existsSync(dataFile('server.json'))).toBe(false);
  });

  it('takes new models at SIGHUP, with their short names', async () => {
    const { url, server } = await serve();
    const model = {
      tier: 'fast',
      aliases: ['quick'],
      capabilities: { max_context_tokens: 9000, max_output_tokens: 900 },
    };
    const list = write('models.json', { updated_on: TODAY, models: { 'scripted:new': model } });
    const updated = await metis('models', 'update', '--from', list, '--yes');
    expect(updated).toMatchObject({ code: 0, stdout: expect.stringContaining('added: scripted:new') });
    server.signal('SIGHUP');
    const find = async () =>
      (await getJson(`${url}/models`)).models.find((one: { id: string }) => one.id === 'scripted:new');
    expect(await until(find)).toMatchObject({ aliases: ['quick'], configured: true, tier: 'fast' });
  });
});

describe('metis models update', () => {
  it('takes models and never an address or a key; refuses a wrong entry by its name', async () => {
    const shipped = fs.readFileSync(path.join(ROOT, 'config/registry.yaml'), 'utf8');
    expect(await metis('models', 'update', '--from', write('same.yaml', shipped), '--yes')).toMatchObject({ code: 3 });

    const capabilities = { max_context_tokens: 9000, max_output_tokens: 900 };
    const adapters = { anthropic: { type: 'anthropic', base_url: 'http://evil.example', api_key_env: 'HOME' } };
    const taken = {
      updated_on: TODAY,
      adapters,
      models: { 'anthropic:claude-next': { aliases: ['haiku'], capabilities } },
    };
    const { code, stdout } = await metis('models', 'update', '--from', write('taken.json', taken), '--yes');
    expect({ code, stdout }).toEqual({
      code: 0,
      stdout: 'added: anthropic:claude-next\nchanged: anthropic:claude-haiku-5-5\n',
    });
    expect(fs.readFileSync(dataFile('models-update.json'), 'utf8')).not.toContain('evil');

    const wrong = { models: { 'anthropic:x': { capabilities: { max_context_tokens: 0, max_output_tokens: 1 } } } };
    const refused = await metis('models', 'update', '--from', write('wrong.json', wrong), '--yes');
    expect(refused).toMatchObject({ code: 1, stderr: expect.stringContaining('models.anthropic:x.capabilities') });
    const foreign = { models: { 'else:x': { capabilities } } };
    expect(await metis('models', 'update', '--from', write('foreign.json', foreign), '--yes')).toMatchObject({
      code: 1,
      stderr: expect.stringContaining('unknown adapter "else"'),
    });
  });
});

describe('metis doctor', () => {
  // Promise 22.9: old prices, and models in use whose successor costs less, are reported.
  it('names prices older than 30 days, and models in use whose successor costs less', async () => {
    const capabilities = { max_context_tokens: 90_000, max_output_tokens: 900 };
    const entry = (tier: string, over: object = {}) => ({ tier, capabilities, ...over });
    fs.mkdirSync(path.dirname(dataFile('x')), { mode: 0o700 });
    const models = {
      'scripted:old': entry('balanced', { superseded_by: 'scripted:new' }),
      'scripted:idle': entry('deep', { superseded_by: 'scripted:new' }),
      'scripted:new': entry('fast'),
    };
    fs.writeFileSync(
      dataFile('registry.yaml'),
      JSON.stringify({ adapters: { scripted: { type: 'scripted' } }, models }),
    );
    const prices = {
      'scripted:old': rates('2', '4'),
      'scripted:idle': rates('2', '4'),
      'scripted:new': rates('1', '4'),
    };
    const file = write('own.json', table(prices, { imported_on: '2020-01-01' }));
    const set = ['--set', `pricing.tables=["${file}"]`];
    const remarks = async () => (await metis('doctor', '--port', '0', ...set)).stdout.split('\n');
    expect((await remarks()).filter((line) => line.includes('costs less'))).toEqual([]);
    const server = startHere(['serve', '--port', '0', ...set], { home: home.path });
    await address(server);
    expect(await metis('run', 'say hello', '--model', 'scripted:old')).toMatchObject({ code: 0 });
    await server.stop();
    const lines = await remarks();
    expect(lines.filter((line) => line.includes('costs less'))).toEqual([
      'warning  scripted:old was used in the last 30 days; its successor scripted:new costs less',
    ]);
    expect(lines.filter((line) => line.includes('days old'))).toEqual([
      expect.stringMatching(/^warning {2}the prices are \d+ days old \(of 2020-01-01\); metis prices update /),
    ]);
  });
});
