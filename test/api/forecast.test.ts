// Forecasts of turns over HTTP: from earlier turns of one shape, noted at the start, compared with what came (21 §1).
import { expect, test } from 'vitest';
import { fromPusd, toPusd } from '#protocol/money.ts';
import type { CostHistory, Forecast } from '#protocol/what-if/cost-ahead.ts';
import { type BothWorld, describeOnBoth } from '../support/both-databases.ts';
import type { FakeCall, FakeMessage } from '../support/fake-provider.ts';
import { type RealServer, startStrictFake } from '../support/real-server.ts';
import { registryAt } from '../support/registry-at.ts';

const MODEL = 'anthropic:claude-opus-4-7';
const WORKER_MODEL = 'anthropic:claude-haiku-4-5';
const TASK = 'refactor the module';
const INPUT = 10;
/** Opus of fixture table A costs 15 and 75 dollars a million tokens, Haiku 1 and 5. */
const priceAnswer = (output: number) => fromPusd(BigInt(INPUT) * 15_000_000n + BigInt(output) * 75_000_000n);
const priceWorker = (output: number) => fromPusd(BigInt(INPUT) * 1_000_000n + BigInt(output) * 5_000_000n);
const answer = (output: number, rest: Partial<FakeMessage> = {}): FakeMessage => ({
  text: 'done',
  usage: { input: INPUT, output },
  ...rest,
});
/** The value that this many per cent of the values do not pass. */
const findRank = (values: readonly string[], percent: number) => {
  const sorted = [...values].sort((a, b) => Number(toPusd(a) - toPusd(b)));
  return sorted[Math.ceil((percent * sorted.length) / 100) - 1]!;
};

async function startWith(world: BothWorld, say: (call: FakeCall) => FakeMessage | Promise<FakeMessage>, name = 'a') {
  const fake = await startStrictFake(say);
  return world.start({ registry: registryAt(fake), name });
}

async function readHistory(server: RealServer, workspace: string): Promise<CostHistory | null> {
  const session = await server.session(workspace, MODEL);
  const { body } = await server.call('POST', `/sessions/${session}/estimate`, { content: TASK });
  return body.history;
}

describeOnBoth('a forecast', (open, database) => {
  // Turns take ten times as long on PostgreSQL; fewer trees show the same.
  const count = process.env.METIS_PROPERTY_RUNS !== undefined ? 300 : database === 'sqlite' ? 100 : 40;

  // Promise 21.1: p50 and p90 of earlier turns of the shape, by nearest rank; too few of them give none.
  test('20 turns with known costs give p50 and p90 exactly, 7 none, and another workspace those of the server', async () => {
    const outputs = Array.from({ length: 20 }, (_, i) => ((i * 7) % 20) * 100 + 50);
    let calls = 0;
    const world = await open();
    const server = await startWith(world, () => answer(outputs[calls++]!));
    const [app, other] = [world.workspace('app'), world.workspace('other')];
    const costs: string[] = [];
    for (const [index, output] of outputs.entries()) {
      if (index === 7) expect(await readHistory(server, app)).toBeNull();
      if (index === 8)
        expect(await readHistory(server, app)).toEqual({
          n: 8,
          p50_usd: findRank(costs, 50),
          p90_usd: findRank(costs, 90),
          basis: 'workspace',
        });
      if (index === 19) expect(await readHistory(server, other)).toBeNull();
      const { total_cost_usd } = await server.turn(await server.session(app, MODEL), TASK);
      expect(total_cost_usd).toBe(priceAnswer(output));
      costs.push(total_cost_usd);
    }
    // 20 costs in steps: the tenth and the eighteenth.
    const whole = { n: 20, p50_usd: priceAnswer(950), p90_usd: priceAnswer(1750) };
    expect(await readHistory(server, app)).toEqual({ ...whole, basis: 'workspace' });
    expect(await readHistory(server, other)).toEqual({ ...whole, basis: 'server' });
    // Another model, another effort or another shape has no history.
    const session = await server.session(app, WORKER_MODEL);
    const asked = async (content: string) =>
      (await server.call('POST', `/sessions/${session}/estimate`, { content })).body.history;
    expect(await asked(TASK)).toBeNull();
    expect(await asked('write the docs')).toBeNull();
  });

  // Promise 21.1: the forecast of a running turn is never below what it has spent.
  test('a running turn carries its forecast, at least what it has cost with its workers', async () => {
    let release = () => {};
    const held = new Promise<void>((resolve) => {
      release = resolve;
    });
    const world = await open();
    const server = await startWith(world, async ({ user, results, tools }) => {
      if (!tools.includes('delegate')) return answer(3000);
      if (!user.includes('large')) return answer(100);
      if (results.length === 0)
        return answer(1000, { tool_calls: [{ name: 'delegate', input: { tier: 'fast', task: 'help' } }] });
      await held;
      return answer(10);
    });
    const app = world.workspace('app');
    for (let i = 0; i < 8; i += 1) await server.turn(await server.session(app, MODEL), 'read it');
    const id = await server.session(app, MODEL);
    const { body: receipt } = await server.call('POST', `/sessions/${id}/turns`, { content: 'read the large one' });
    const readForecast = async (): Promise<Forecast | null> =>
      (await server.call('GET', `/sessions/${id}`)).body.forecast_usd;
    await server.event('tool.completed', (event) => event.turn_id === receipt.turn_id);
    const spent = fromPusd(toPusd(priceAnswer(1000)) + toPusd(priceWorker(3000)));
    expect(await readForecast()).toEqual({ p50_usd: spent, p90_usd: spent });
    const stored = await server.engine.store.turns.record(id, receipt.turn_id);
    expect(stored?.forecast).toEqual({ p50_usd: priceAnswer(100), p90_usd: priceAnswer(100) });
    release();
    await server.event('turn.completed', (event) => event.turn_id === receipt.turn_id);
    expect(await readForecast()).toBeNull();
  });

  // Promise 21.10: each stored forecast is that of the trees before it, and the report has exactly their shares.
  test(`${count} trees with workers: each stored forecast is exact, over a restart too, and the report has their shares`, async () => {
    let seed = 7;
    const random = (below: number) => {
      seed = (seed * 1_103_515_245 + 12_345) % 2_147_483_648;
      return seed % below;
    };
    const say = ({ tools, results }: FakeCall): FakeMessage => {
      const output = 1 + random(2000);
      if (!tools.includes('delegate') || results.length > 0) return answer(output);
      const tool_calls = Array.from({ length: random(3) }, () => ({
        name: 'delegate',
        input: { tier: 'fast', task: 'help' },
      }));
      return answer(output, tool_calls.length === 0 ? {} : { tool_calls });
    };
    const world = await open();
    let server = await startWith(world, say);
    const places = ['one', 'two'].map(world.workspace);
    const tasks = ['refactor it', 'write the docs'];
    const trees: { place: string; task: string; cost: string; forecast: Forecast | null }[] = [];
    const foresee = (place: string, task: string): Forecast | null => {
      const alike = trees.filter((tree) => tree.task === task);
      const own = alike.filter((tree) => tree.place === place);
      const counted = own.length >= 8 ? own : alike.length >= 20 ? alike : [];
      const costs = counted.slice(-500).map(({ cost }) => cost);
      return costs.length === 0 ? null : { p50_usd: findRank(costs, 50), p90_usd: findRank(costs, 90) };
    };
    let delegating = 0;
    for (let i = 0; i < count; i += 1) {
      if (i === count / 2) {
        await server.close();
        server = await startWith(world, say);
      }
      const place = places[random(10) < 8 ? 0 : 1]!;
      const task = tasks[random(2)]!;
      const forecast = foresee(place, task);
      const id = await server.session(place, MODEL);
      const turn = await server.turn(id, task);
      const stored = await server.engine.store.turns.record(id, turn.id);
      expect(stored?.forecast, `tree ${i}`).toEqual(forecast);
      const cost = fromPusd(toPusd(turn.total_cost_usd) + toPusd(turn.workers_cost_usd));
      trees.push({ place, task, cost, forecast });
      if (turn.worker_session_ids.length > 0) delegating += 1;
    }
    expect(delegating).toBeGreaterThan(count / 3);
    const checked = trees.filter(({ forecast }) => forecast !== null).slice(-200);
    const countWithin = (bound: keyof Forecast) =>
      checked.filter(({ cost, forecast }) => toPusd(cost) <= toPusd(forecast![bound])).length;
    expect((await server.call('GET', '/analytics/forecast')).body).toEqual({
      n: checked.length,
      within_p50: countWithin('p50_usd') / checked.length,
      within_p90: countWithin('p90_usd') / checked.length,
    });
  }, 120_000);
});
