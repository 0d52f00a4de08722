// Money of two people on one server that is killed over and over: neither passes its limit (23 §3).
import { afterEach, expect, it } from 'vitest';
import { createMetisClient, type MetisClient } from '#client/client.ts';
import { ApiError } from '#client/request.ts';
import { sumPusd, toPusd } from '#protocol/money.ts';
import { until } from '../support/until.ts';
import { startWorld, type World } from './world.ts';

const ADMIN = 'the-admin-0123456789abcdef0123456789ab';
const IS_FULL = process.env.CRASH_KILLS !== undefined;
const TREES = IS_FULL ? 64 : 16;
const KILLS = IS_FULL ? 10 : 2;
const SERVE = [
  '--set',
  `server.auth_tokens=${JSON.stringify([ADMIN])}`,
  '--set',
  'turn.max_output_tokens=2000',
] as const;
const LIMITS = { ann: '1', bob: '1.5' };
const PATIENCE_SECONDS = 120;

let world: World;
afterEach(() => world.close());

// Promise 23.4: parallel trees of two owners on one node that is killed: neither passes its day or its month.
it(`${TREES} trees of two owners stay within the day of one and the month of the other through ${KILLS} kills`, async () => {
  world = await startWorld(async ({ tools, results }) => {
    const usage = { input: 1000, output: 1900 };
    if (tools.includes('delegate') && results.length === 0)
      return { tool_calls: [{ name: 'delegate', input: { tier: 'fast', task: 'job' } }], usage };
    return { text: 'done', usage };
  });
  let server = await world.serve(...SERVE);
  const as = (token: string) => createMetisClient({ baseUrl: world.url, token });
  const admin = as(ADMIN);
  const clients = {
    ann: as((await admin.createToken({ name: 'ann', role: 'member', daily_usd: LIMITS.ann })).secret),
    bob: as((await admin.createToken({ name: 'bob', role: 'member', monthly_usd: LIMITS.bob })).secret),
  };
  const names = ['ann', 'bob'] as const;
  /** The same question until the server is there to answer it. */
  const insist = <T>(ask: () => Promise<T>) =>
    until(async () => {
      try {
        return { value: await ask() };
      } catch (error) {
        if (error instanceof ApiError && error.code !== 'service_shutting_down') return { error };
        return null;
      }
    }, PATIENCE_SECONDS);
  async function tree(client: MetisClient): Promise<void> {
    const body = { workspace_path: world.workspace, initial_active_model: 'plan' };
    const session = (await insist(() => client.createSession(body))).value!.id;
    for (;;) {
      const submitted = await insist(() => client.submitTurn(session, { content: 'go', if_busy: 'reject' }));
      if (submitted.error?.code === 'budget_exceeded') return;
      // A submission that was cut off may have started its turn.
      const turn = await until(async () => {
        const { value } = await insist(() => client.listTurns(session, { limit: 1 }));
        return value!.turns[0] !== undefined && value!.turns[0].ended_at !== null && value!.turns[0];
      }, PATIENCE_SECONDS);
      if (turn.stop_reason === 'budget_exceeded') return;
    }
  }
  const running = Promise.all(Array.from({ length: TREES }, (_, i) => tree(clients[names[i % 2]!])));
  for (let kill = 1; kill <= KILLS; kill += 1) {
    const before = world.provider.calls.length;
    await until(() => world.provider.calls.length >= before + 12, PATIENCE_SECONDS);
    await server.stop('SIGKILL');
    server = await world.serve(...SERVE);
  }
  await running;
  const costs = world.rows<{ name: string; usd: string }>(
    `SELECT t.name, CAST(c.cost_pusd AS text) AS usd FROM llm_calls c JOIN sessions s ON s.id = c.session_id
     JOIN tokens t ON t.id = s.owner`,
  );
  for (const name of names) {
    const spent = sumPusd(
      costs.filter((row) => row.name === name).map(({ usd }) => BigInt(usd) as ReturnType<typeof toPusd>),
    );
    const limit = toPusd(LIMITS[name]);
    expect([name, spent <= limit, spent * 10n >= limit * 7n, String(spent)]).toEqual([name, true, true, String(spent)]);
  }
});
