// Keys come from the environment and the data folder, and appear nowhere else (11.9).
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { type CommandContext, loadSettings } from '#server/context.ts';
import { createCredentials, displayKey, readEnvFile } from '#server/credentials.ts';
import { createLogger } from '#server/log.ts';

let dir: string;
beforeEach(() => {
  dir = fs.mkdtempSync(path.join(os.tmpdir(), 'metis-keys-'));
});
afterEach(() => fs.rmSync(dir, { recursive: true, force: true }));

describe('the .env file', () => {
  const write = (mode: number) => {
    fs.writeFileSync(path.join(dir, '.env'), 'OPENAI_API_KEY=from-the-file\n');
    fs.chmodSync(path.join(dir, '.env'), mode);
  };

  it('is read when only its owner can read it', () => {
    write(0o600);
    expect(readEnvFile(dir)).toEqual({
      path: path.join(dir, '.env'),
      values: { OPENAI_API_KEY: 'from-the-file' },
      problem: null,
      remarks: [],
    });
  });

  it('is left alone with one line that names path, mode and cure when others can read it', () => {
    write(0o644);
    const { values, problem } = readEnvFile(dir);
    expect(values).toEqual({});
    expect(problem).toContain(path.join(dir, '.env'));
    expect(problem).toContain('0644');
    expect(problem).toContain('chmod 600');
  });

  it('has a remark for each line that sets nothing, which does not show it', () => {
    const file = path.join(dir, '.env');
    const text = '# keys\n\nOPENAI_API_KEY sk-secret\nA=1\nLONG="one\ntwo\nthree"\nexport B=2\nstray\n';
    fs.writeFileSync(file, text, { mode: 0o600 });
    const { remarks, values } = readEnvFile(dir);
    expect(remarks).toEqual([expect.stringContaining('line 3'), expect.stringContaining('line 9')]);
    expect(remarks.join()).not.toContain('secret');
    expect(values).toMatchObject({ A: '1', LONG: 'one\ntwo\nthree', B: '2' });
  });

  // Promise 11.16: a key in the environment wins over the file's.
  it('what is already set wins over the .env file, which serves the rest', () => {
    fs.mkdirSync(path.join(dir, '.metis'));
    fs.writeFileSync(path.join(dir, '.metis/.env'), 'OPENAI_API_KEY=file\nANTHROPIC_API_KEY=file\n', { mode: 0o600 });
    const settings = loadSettings(
      { env: { OPENAI_API_KEY: 'set' }, cwd: dir, home: dir, packageDir: dir } as unknown as CommandContext,
      {},
    );
    if (!settings.ok) throw new Error(settings.error.join('\n'));
    const { credentials } = settings.value;
    expect(credentials.forAdapter('openai', { type: 'openai' })?.key).toBe('set');
    expect(credentials.forAdapter('anthropic', { type: 'anthropic' })?.key).toBe('file');
  });

  it('may be absent', () => {
    expect(readEnvFile(dir)).toMatchObject({ values: {}, problem: null });
  });
});

describe('keys', () => {
  it('an override beats the named variable, which beats the conventional one', () => {
    const env = { ANTHROPIC_API_KEY: 'conventional', HOUSE_KEY: 'named' };
    const plain = { type: 'anthropic' };
    const named = { type: 'anthropic', api_key_env: 'HOUSE_KEY' };
    expect(createCredentials(env).forAdapter('anthropic', plain)?.key).toBe('conventional');
    expect(createCredentials(env).forAdapter('anthropic', named)?.key).toBe('named');
    expect(createCredentials(env, { anthropic: 'override' }).forAdapter('anthropic', named)?.key).toBe('override');
    expect(createCredentials({ MY_HOST_API_KEY: 'own' }).forAdapter('my-host', { type: 'openai' })?.key).toBe('own');
  });

  it('without a key an adapter is unusable, unless it needs none', () => {
    const none = createCredentials({});
    expect(none.forAdapter('anthropic', { type: 'anthropic' })).toBeNull();
    expect(none.forAdapter('local', { type: 'openai', key_optional: true })).toEqual({ key: null, base_url: null });
    const local = createCredentials({ OPENAI_BASE_URL: 'http://127.0.0.1:11434/v1' });
    expect(local.forAdapter('openai', { type: 'openai' })).toEqual({
      key: null,
      base_url: 'http://127.0.0.1:11434/v1',
    });
  });

  it('the registry decides the address before the environment does', () => {
    const env = { ANTHROPIC_API_KEY: 'k', ANTHROPIC_BASE_URL: 'http://127.0.0.1:1' };
    const at = (base_url?: string) => createCredentials(env).forAdapter('anthropic', { type: 'anthropic', base_url });
    expect(at()?.base_url).toBe('http://127.0.0.1:1');
    expect(at('http://127.0.0.1:2')?.base_url).toBe('http://127.0.0.1:2');
  });

  // Promise 11.17: a short key is shown as nothing of it.
  it('is shown in part only when it is long', () => {
    expect(displayKey('sk-ant-api03-0123456789abcdef')).toBe('sk-ant-a...cdef');
    expect(displayKey('123456789012')).toBe('***');
    expect(displayKey('')).toBe('<empty>');
  });
});

it('no log line holds a key, whatever its shape and wherever it stands', () => {
  const key = 'plain-house-key-without-a-known-shape';
  const credentials = createCredentials({ HOUSE_KEY: key });
  credentials.forAdapter('house', { type: 'openai', api_key_env: 'HOUSE_KEY' });
  const lines: string[] = [];
  const log = createLogger('info', () => credentials.secrets, { write: (line) => lines.push(line) });
  log.warn({ detail: { list: [`x ${key}`] }, headers: { authorization: 'Bearer abc' } }, `refused ${key}`);
  log.child({ adapter: key }).error({ error: new Error(`provider said ${key}`) }, 'call failed');
  const written = lines.join('');
  expect(written).not.toContain(key);
  expect(written).not.toContain('Bearer abc');
  expect(lines.map((line) => JSON.parse(line).level)).toEqual(['warn', 'error']);
});
