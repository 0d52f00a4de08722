// What start, doctor and config check say of keys, models of one's own and the data folder.
import fs from 'node:fs';
import path from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { runHere, startHere } from './here.ts';
import { address, temporaryHome } from './metis.ts';

let home: ReturnType<typeof temporaryHome>;
let data: string;
beforeEach(() => {
  home = temporaryHome();
  data = path.join(home.path, '.metis');
  fs.mkdirSync(data, { mode: 0o700 });
});
afterEach(() => home.remove());

const doctor = async (env: Record<string, string> = {}, ...args: string[]) =>
  runHere(['doctor', '--port', '0', ...args], { home: home.path, env });
/** What a server says until it is stopped, and what it answered to one message. */
async function served(env: Record<string, string> = {}) {
  const server = startHere(['serve', '--port', '0'], { home: home.path, env });
  try {
    const url = await address(server);
    const post = async (at: string, body: object) =>
      (
        await fetch(`${url}${at}`, {
          method: 'POST',
          headers: { 'content-type': 'application/json', prefer: 'wait=60' },
          body: JSON.stringify(body),
        })
      ).json() as Promise<ReturnType<typeof JSON.parse>>;
    const { id } = await post('/sessions', { workspace_path: home.path });
    const turn = await post(`/sessions/${id}/turns`, { content: 'hi' });
    return { turn, ...(await server.stop()) };
  } finally {
    await server.stop();
  }
}

describe('an address of a provider that is the server itself', () => {
  it.each(['localhost', '127.0.0.1', '[::1]'])('ends the start, and the doctor says so: %s', async (host) => {
    const env = { ANTHROPIC_BASE_URL: `http://${host}:18420`, ANTHROPIC_API_KEY: 'key' };
    const said =
      /anthropic: its address \S+ is this server itself; ANTHROPIC_BASE_URL is for the clients of this server/;
    const refused = await runHere(['serve', '--port', '18420'], { home: home.path, env });
    expect(refused.code).toBe(1);
    expect(refused.stderr).toMatch(said);
    expect((await runHere(['doctor', '--port', '18420'], { home: home.path, env })).stdout).toMatch(
      new RegExp(`^error +${said.source}`, 'm'),
    );
    // Another server on this machine may be a provider, and a gateway of its own.
    expect((await doctor(env)).stdout).not.toMatch(said);
  });
});

describe("a registry of one's own with a server that has no key", () => {
  const MODEL = '{ tier: balanced, capabilities: { max_context_tokens: 8192, max_output_tokens: 1024 } }';
  const write = (adapter: string) =>
    fs.writeFileSync(
      path.join(data, 'registry.yaml'),
      `adapters:\n  ollama: { type: openai, base_url: http://127.0.0.1:9/v1${adapter} }\nmodels:\n  ollama:tiny: ${MODEL}\n`,
    );

  it('is told of key_optional where it is missing, and nothing else answers in its place', async () => {
    write('');
    const cure = /OLLAMA_API_KEY.*key_optional: true in the registry/;
    const { turn, stdout, stderr } = await served();
    expect(turn.error).toMatchObject({ code: 'routing_failed' });
    expect(stdout).toMatch(/No adapter of .*registry\.yaml can be used, so every message is refused/);
    expect(stdout).toMatch(cure);
    expect(stdout).not.toContain('ANTHROPIC_API_KEY');
    expect(stderr).toMatch(cure);
    const { code, stdout: told } = await doctor();
    expect(code).toBe(1);
    expect(told).toMatch(new RegExp(`^warning +ollama: no key; .*${cure.source}`, 'm'));
    expect(told).toMatch(/^error +no adapter can be used/m);
  });

  it('is used with key_optional, and doctor says so', async () => {
    write(', key_optional: true');
    const { code, stdout } = await doctor();
    expect(code).toBe(0);
    expect(stdout).toMatch(/^ok +ollama: no key, and none is needed at http:\/\/127\.0\.0\.1:9\/v1$/m);
    expect((await served()).turn).toMatchObject({ status: 'failed', chosen_model: 'ollama:tiny' });
  });
});

describe('metis doctor', () => {
  it('takes one provider for enough, and says what answers where there is none', async () => {
    const one = (await doctor({ OPENROUTER_API_KEY: 'a-key' })).stdout;
    expect(one).toMatch(/^ok +openrouter: key found$/m);
    expect(one).toMatch(/^ok +anthropic: not used, ANTHROPIC_API_KEY is not set$/m);
    expect(one).not.toMatch(/^warning +\w+: no key/m);
    const none = (await doctor()).stdout;
    expect(none).toMatch(
      /^warning +no provider key, so simulated models answer; set ANTHROPIC_API_KEY or OPENAI_API_KEY or OPENROUTER_API_KEY/m,
    );
    expect(none.match(/_API_KEY/g)).toHaveLength(3);
  });

  it('names no key where the registry has scripted models alone', async () => {
    const own = path.join(data, 'scripted.yaml');
    fs.writeFileSync(
      own,
      'adapters: { scripted: { type: scripted } }\nmodels: { "scripted:fast": { tier: fast, capabilities: { max_context_tokens: 9000, max_output_tokens: 900 } } }\n',
    );
    const { stdout } = await doctor({}, '--data', data, '--set', `registry.path=${own}`);
    expect(stdout).toMatch(/^warning +scripted models answer: the registry has no other adapter$/m);
    expect(stdout).not.toContain('_API_KEY');
  });

  it('takes the running server for what it is, not for a taken port', async () => {
    const server = startHere(['serve', '--port', '0', '--data', data], { home: home.path });
    try {
      const url = await address(server);
      const { code, stdout } = await doctor({}, '--data', data, '--port', new URL(url).port);
      expect(code).toBe(0);
      expect(stdout).toContain(`the server answers at ${url}\n`);
      expect(stdout).not.toContain('is taken');
    } finally {
      await server.stop();
    }
  });

  it('claims no key for an address that needs none', async () => {
    const { stdout } = await doctor({ OPENAI_BASE_URL: 'http://127.0.0.1:9/v1' });
    expect(stdout).toMatch(/^ok +openai: no key, and none is needed at http:\/\/127\.0\.0\.1:9\/v1$/m);
  });

  it('says that the data folder is a file', async () => {
    const file = path.join(home.path, 'file');
    fs.writeFileSync(file, '');
    const { code, stdout } = await doctor({}, '--data', file);
    expect(code).toBe(1);
    expect(stdout).toMatch(/^error +the data folder \S+ is a file; name a folder with --data$/m);
  });

  it('names the folder that cannot be made, not the one above it that stops it', async () => {
    const file = path.join(home.path, 'file');
    fs.writeFileSync(file, '');
    const folder = path.join(file, 'deep', 'data');
    const below = await doctor({}, '--data', folder);
    expect([below.code, below.stdout]).toEqual([
      1,
      expect.stringContaining(`error    the data folder ${folder} cannot`),
    ]);
    expect(below.stdout).toContain(`cannot be made, as ${file} is a file; name another with --data\n`);
    const database = await doctor({}, '--set', `storage.db_path=${path.join(folder, 'a.db')}`);
    expect(database.stdout).toContain(
      `the folder of the database ${folder} cannot be made, as ${file} is a file; set storage.db_path\n`,
    );
  });

  it.skipIf(process.getuid?.() === 0)('never advises to change the rights of another folder', async () => {
    const closed = path.join(home.path, 'closed');
    fs.mkdirSync(closed, { mode: 0o500 });
    const own = await doctor({}, '--data', closed);
    expect(own.stdout).toContain(`${closed} cannot be written; change its rights or name another with --data\n`);
    const folder = path.join(closed, 'deep', 'data');
    const { stdout } = await doctor({}, '--data', folder);
    expect(stdout).toContain(
      `the data folder ${folder} cannot be made, as ${closed} cannot be written; name another with --data\n`,
    );
    expect(stdout).not.toContain('change its rights');
  });

  it.skipIf(process.platform === 'win32')('warns of a data folder and a database that others may read', async () => {
    expect((await doctor()).stdout).not.toContain('others');
    fs.writeFileSync(path.join(data, 'metis.db'), '');
    fs.chmodSync(path.join(data, 'metis.db'), 0o644);
    fs.chmodSync(data, 0o755);
    const { code, stdout } = await doctor();
    expect(code).toBe(0);
    expect(stdout).toContain(`others may look into ${data} (mode 0755); run: chmod 700 ${data}`);
    expect(stdout).toContain(`others may read the database; run: chmod 600 ${path.join(data, 'metis.db')}`);
  });

  it('names the lines of .env that say nothing', async () => {
    fs.writeFileSync(path.join(data, '.env'), 'OPENAI_API_KEY a-secret\n', { mode: 0o600 });
    const { stdout } = await doctor();
    expect(stdout).toMatch(/^warning +\S+\.env: line 1 has no "="/m);
    expect(stdout).not.toContain('a-secret');
  });
});

describe('webhooks', () => {
  it('doctor names each receiver without the rest of its address; a key that is not set is an error, to config check too', async () => {
    const receivers = [
      { url: 'https://example.org/hooks/s3cret', events: ['turn.failed', 'budget.exceeded'] },
      { url: 'http://127.0.0.1:9/', events: ['turn.completed'], secret_env: 'HOOK_SECRET' },
    ];
    const set = ['--set', `notify=${JSON.stringify(receivers)}`];
    const { code, stdout } = await doctor({}, ...set);
    expect(stdout).toMatch(/^ok +webhook to https:\/\/example\.org: turn\.failed, budget\.exceeded; not signed$/m);
    expect(stdout).toMatch(/^error +webhook to http:\/\/127\.0\.0\.1:9: HOOK_SECRET is not set/m);
    expect([code, stdout.includes('s3cret')]).toEqual([1, false]);
    const signed = await doctor({ HOOK_SECRET: 'k' }, ...set);
    expect(signed.stdout).toMatch(/^ok +webhook to \S+: turn\.completed; signed with HOOK_SECRET$/m);
    const checked = await runHere(['config', 'check', ...set], { home: home.path });
    expect([checked.code, checked.stderr]).toEqual([
      1,
      expect.stringMatching(/notify\.1\.secret_env: HOOK_SECRET is not/),
    ]);
  });
});

describe.each(['routing.global_default_model', 'workers.creation.default_model'])('%s', (key) => {
  const set = (model: string) => ['--set', `${key}=${model}`];
  const commands = [
    ['config', 'check'],
    ['doctor', '--port', '0'],
    ['serve', '--port', '0'],
  ];

  // Promise 13.43: an unknown default model is refused where the configuration is read.
  it.each(commands)('that is no model is refused by %s', async (...command) => {
    const { code, stdout, stderr } = await runHere([...command, ...set('nonsense')], { home: home.path });
    expect(code).toBe(1);
    expect(stdout + stderr).toContain(`${key}: "nonsense" is no model of the registry; `);
    expect(stdout + stderr).toMatch(/; it has .*haiku/);
    expect(fs.existsSync(path.join(data, 'metis.db'))).toBe(false);
  });

  it('without a key is a warning', async () => {
    const warning = new RegExp(`warning:? +${key}: anthropic:\\S+ is registered but its adapter has no cred`);
    expect((await doctor({}, ...set('haiku'))).stdout).toMatch(warning);
    expect(await runHere(['config', 'check', ...set('haiku')], { home: home.path })).toMatchObject({
      code: 0,
      stdout: expect.stringMatching(warning),
    });
  });
});
