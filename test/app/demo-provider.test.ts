// `metis demo --provider`: the demo's job on a real adapter, run as a person runs it, against a provider on the loopback.
import fs from 'node:fs';
import path from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import { toPusd } from '#protocol/money.ts';
import { playJob } from '../support/demo-job.ts';
import type { FakeProvider } from '../support/fake-provider.ts';
import { startStrictFake } from '../support/real-server.ts';
import { KEYS } from '../support/registry-at.ts';
import { run, temporaryHome } from './metis.ts';

const home = temporaryHome();
const temporary = path.join(home.path, 'tmp');
fs.mkdirSync(temporary);
afterAll(() => home.remove());

const demo = (provider: string, env: Record<string, string>) =>
  run(['demo', '--provider', provider], { home: home.path, env: { TMPDIR: temporary, ...env } });

describe.each([
  ['anthropic', (fake: FakeProvider) => fake.anthropicUrl, 'claude-opus-5-5', 'claude-haiku-5-5'],
  ['openai', (fake: FakeProvider) => fake.openaiUrl, 'gpt-6-astra', 'gpt-6-luna'],
] as const)('with a key of %s', (provider, url, planner, worker) => {
  it('does the whole job on its models, with a table of costs that adds up', async () => {
    const fake = await startStrictFake(playJob());
    const name = provider.toUpperCase();
    const { code, stdout, stderr } = await demo(provider, {
      [`${name}_API_KEY`]: KEYS[provider],
      [`${name}_BASE_URL`]: url(fake),
    });
    expect(stderr).toBe('');
    expect(code).toBe(0);
    expect(stdout.replaceAll('\n', ' ')).toContain('the tests pass');
    expect(stdout).not.toContain(KEYS[provider]);
    const costs = (label: string) =>
      [...stdout.matchAll(new RegExp(`^${label} .*\\$([\\d.]+)$`, 'gm'))].map((match): bigint => toPusd(match[1]!));
    const rows = [...costs('planner').slice(0, 1), ...costs('worker \\d')];
    expect(rows).toHaveLength(4);
    expect(costs('total')).toEqual([rows.reduce((a, b) => a + b, 0n)]);
    expect(costs('total')[0]).toBeGreaterThan(0n);

    expect(fake.calls.map((call) => call.model).sort()).toEqual(
      [...Array(6).fill(planner), ...Array(9).fill(worker)].sort(),
    );
    const sent = fake.calls[0]!.headers;
    expect(provider === 'anthropic' ? sent['x-api-key'] : sent.authorization).toContain(KEYS[provider]);
    expect(fs.readdirSync(temporary).filter((file) => file.startsWith('metis-'))).toEqual([]);
  });
});

it('a key that the provider refuses is said in one line, without the key', async () => {
  const fake = await startStrictFake(() => ({
    status: 401,
    error: { type: 'authentication_error', message: `invalid x-api-key ${KEYS.anthropic}` },
  }));
  const { code, stdout, stderr } = await demo('anthropic', {
    ANTHROPIC_API_KEY: KEYS.anthropic,
    ANTHROPIC_BASE_URL: fake.anthropicUrl,
  });
  expect(code).toBe(1);
  expect(stdout + stderr).not.toContain(KEYS.anthropic);
  expect(stdout).toMatch(/^The turn failed: /m);
  expect(fake.calls).toHaveLength(1);
});
