// The soak, short: what `npm test -- soak` does for ten minutes with 512 sessions.
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import path from 'node:path';
import { expect, it } from 'vitest';
import { ROOT } from './metis.ts';

it('sessions that stream, delegate, end and are replaced leave no timer, listener or descriptor behind', async () => {
  const env = { ...process.env, SOAK_MINUTES: '0.2', SOAK_SESSIONS: '10', SOAK_PAUSE_MS: '10' };
  const soak = spawn(process.execPath, [path.join(ROOT, 'bench/soak.mjs')], { env, stdio: ['ignore', 'pipe', 'pipe'] });
  let said = '';
  for (const stream of [soak.stdout, soak.stderr]) stream.setEncoding('utf8').on('data', (piece) => (said += piece));
  const [code] = await once(soak, 'close');
  expect(said).toMatch(/^\d+ turns in \d+ sessions$/m);
  expect([code, said.match(/^FAILED: .*$/gm)], said).toEqual([0, null]);
});
