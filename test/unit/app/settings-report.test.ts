// The report on settings holds no secret, however an address or a command was written (15 §1).
import { expect, it } from 'vitest';
import { defaultConfig } from '#protocol/config.ts';
import { describeSettings } from '../../../src/server/settings-report.ts';

function report(change: (config: ReturnType<typeof defaultConfig>) => object): string {
  const config = defaultConfig('/data');
  return JSON.stringify(
    describeSettings({
      config: { ...config, ...change(config) },
      dataDir: '/data',
      keysFile: '/data/.env',
      credentials: { secrets: [], secret: () => null, forAdapter: () => null, keyName: () => 'KEY' },
      adapters: new Map(),
      env: {},
      secrets: [],
    }),
  );
}

it.each([
  'nats://u:p-secret@a,nats://u:q-secret@b',
  'nats://u:p-secret@a:4222,nats://u:q-secret@b:4222',
  'nats://t-secret@a:4222?x=q-secret',
  'nats:u:p-secret@a',
])('the address %s is shown without its users', (url) => {
  expect(report(() => ({ nats: { url } }))).not.toContain('secret');
  const database = (config: ReturnType<typeof defaultConfig>) => ({ ...config.database, url });
  expect(report((config) => ({ database: database(config) }))).not.toContain('secret');
});

it('a command with arguments in it is shown without them', () => {
  const tracker = { transport: 'stdio', command: 'npx tracker --token=t-secret' };
  const text = report(() => ({ mcp_servers: { tracker } }));
  expect(text).not.toContain('secret');
  expect(text).toContain('"command":"npx"');
});
