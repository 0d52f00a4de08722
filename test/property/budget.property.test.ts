// No schedule of workers, cancels and crashes makes a tree cost more than its cap (14 §5).
import { createHash } from 'node:crypto';
import fc from 'fast-check';
import { expect, it } from 'vitest';
import { cancelTurn } from '#core/engine/control-turn.ts';
import { recover, resumeAll } from '#core/engine/lifecycle.ts';
import { requestPrompt } from '#core/policy/context/request-prompt.ts';
import type { ProviderAdapter } from '#core/ports/provider.ts';
import { parseScenario } from '#models/scripted/scenario.ts';
import type { CanonicalRequest } from '#protocol/model-call.ts';
import { fromPusd, toPusd } from '#protocol/money.ts';
import { type ReportedBill, STANDARD_TERMS, type TokenUsage } from '#protocol/usage.ts';
import { must, startEngine, type TestEngine } from '../support/engine.ts';
import { tableOf } from '../support/prices.ts';
import { call, delegate } from '../support/scenario.ts';
import { until } from '../support/until.ts';

const MAX_OUTPUT = 100;
/** Tokens of a short request by depth of delegation: caps are set against the cost of the whole. */
const INPUT = [9000, 5500, 5500] as const;
const MODELS = {
  deep: 'anthropic:claude-opus-4-7',
  balanced: 'anthropic:claude-sonnet-4-6',
  fast: 'anthropic:claude-haiku-4-5',
};
const TIERS = ['deep', 'balanced', 'fast'] as const;

interface Step {
  readonly output: number;
  readonly delay: number;
  /** Of the workers it asks for. */
  readonly workers: readonly Worker[];
}
interface Worker {
  readonly tier: (typeof TIERS)[number];
  /** Millionths of a dollar; null = no cap of its own. */
  readonly cap: number | null;
  readonly background: boolean;
  readonly steps: readonly Step[];
}
type Rates = Readonly<Record<(typeof TIERS)[number], { readonly input: number; readonly output: number }>>;

const { worker } = fc.letrec<{ worker: Worker; step: Step; leaf: Step }>((tie) => {
  const figures = {
    output: fc.integer({ min: 0, max: MAX_OUTPUT }),
    delay: fc.integer({ min: 0, max: 6 }),
  };
  return {
    leaf: fc.record({ ...figures, workers: fc.constant([]) }),
    step: fc.oneof(
      { maxDepth: 1, depthIdentifier: 'tree' },
      tie('leaf'),
      fc.record({ ...figures, workers: fc.array(tie('worker'), { maxLength: 3, depthIdentifier: 'tree' }) }),
    ),
    worker: fc.record({
      tier: fc.constantFrom(...TIERS),
      cap: fc.option(fc.integer({ min: 1, max: 20_000 }), { freq: 3 }),
      background: fc.boolean(),
      steps: fc.array(tie('step'), { minLength: 1, maxLength: 3, depthIdentifier: 'tree' }),
    }),
  };
});
const planner = fc.record({
  output: fc.integer({ min: 0, max: MAX_OUTPUT }),
  delay: fc.constant(0),
  workers: fc.array(worker, { minLength: 1, maxLength: 6 }),
});
const rate = fc.integer({ min: 1, max: 10_000 }).map((cents) => cents / 100);
const rates: fc.Arbitrary<Rates> = fc.record({
  deep: fc.record({ input: rate, output: rate }),
  balanced: fc.record({ input: rate, output: rate }),
  fast: fc.record({ input: rate, output: rate }),
});

const plan = fc.record({
  /** Of the planner; the fast one is not offered `delegate`. */
  model: fc.constantFrom('deep' as const, 'balanced' as const),
  rates,
  turns: fc.array(fc.array(planner, { minLength: 1, maxLength: 2 }), { minLength: 1, maxLength: 2 }),
  /** Percent of what the whole would cost; evenly spread, since the tight middle is where schedules matter. */
  percent: fc.constantFrom(25, 35, 45, 55, 65, 75, 85, 95, 120),
  on_reached: fc.constantFrom('stop' as const, 'pause' as const),
  parallel: fc.integer({ min: 1, max: 8 }),
  /** After this many stored events; null = never. */
  cancel: fc.option(fc.record({ after: fc.integer({ min: 4, max: 60 }), worker: fc.boolean() }), { freq: 2 }),
  kill: fc.option(fc.integer({ min: 4, max: 60 }), { freq: 2 }),
});

// Promise 22.6: trees whose calls have rounds, declined fallbacks and discounts stay within their cap, and sum to the digit.
it('the ledger of a tree, and of every capped delegation in it, stays within its cap', async () => {
  // Or nothing was put to the test.
  expect(await capsHold(Number(process.env.BUDGET_RUNS ?? 20), startEngine)).toBeGreaterThan(0);
}, 120_000);

// Promise 14.2: Without the check of a reservation the same plans outspend a cap, and are caught.
it('an engine that does not hold what is reserved against a limit is found out', async () => {
  const careless: typeof startEngine = async (options) => {
    const t = await startEngine(options);
    // As if nothing stood between a call and its provider.
    t.engine.budget.reserved.get = () => toPusd('-1000000');
    return t;
  };
  const outspent = await capsHold(20, careless).catch((error) => String(error.cause));
  expect(outspent).toMatch(/expected \d+n? to be less than or equal to \d+/);
}, 120_000);

/** Runs random plans, throws where one outspends a cap, and counts what was refused. */
async function capsHold(numRuns: number, start: typeof startEngine): Promise<number> {
  let refused = 0;
  await fc.assert(
    fc.asyncProperty(plan, async ({ model, turns, percent, on_reached, parallel, cancel, kill, ...rest }) => {
      const prices = priceTable(rest.rates);
      const all = turns.flatMap((steps, turn) => rules(`t${turn}`, steps, { role: 'planner', turn: turn + 1 }));
      const whole = turns.reduce((sum, steps) => sum + cost(prices, model, steps), 0n);
      const cap = limit((Number(whole) * percent) / 1e8);
      const said = { version: 1, rules: all };
      const options = {
        provider: (script: Script) => honest(script(must(parseScenario(JSON.stringify(said), 'said')))),
        scenario: said,
        prices,
        config: {
          turn: { max_llm_calls: 50, max_output_tokens: MAX_OUTPUT, timeout_seconds: null },
          delegation: { delegate_depth: 2, allow_costlier_fallback: true },
          tools: { max_concurrent_per_session: parallel },
        },
      };
      const first = await start(options);
      const { id } = await first.session({ initial_active_model: MODELS[model], max_cost_usd: cap, on_reached });
      let t = first;
      for (const turn of turns.keys()) {
        const turnId = await t.submit(id, `t${turn}`).catch((error) => {
          expect(['budget_exceeded', 'turn_in_flight']).toContain(error.code);
          return null;
        });
        if (turnId === null) break;
        const done = t.engine.locks.turn(turnId)?.done ?? Promise.resolve();
        if (turn === 0 && cancel) {
          await atEvent(t, cancel.after, done);
          await cancelOne(t, id, turnId, cancel.worker);
        }
        if (turn === 0 && kill !== null) {
          await atEvent(t, kill, done);
          t.abandon();
          t = await start({ ...options, folder: first.folder });
          await recover(t.engine);
          await resumeAll(t.engine);
        }
        await t.engine.locks.turn(turnId)?.done;
      }
      expect(spent(t, 'root_session_id = ?', id)).toBeLessThanOrEqual(toPusd(cap));
      for (const { worker, own } of cappedDelegations(t)) expect(spent(t, SUBTREE, worker)).toBeLessThanOrEqual(own);
      checkBills(t, rest.rates);
      refused += t.db.db.prepare("SELECT 1 FROM events WHERE type = 'budget.exceeded'").all().length;
      await t.close();
    }),
    { numRuns, interruptAfterTimeLimit: 90_000, endOnFailure: true },
  );
  return refused;
}

const SUBTREE = `session_id IN (WITH RECURSIVE below (id) AS (
  SELECT ? UNION ALL SELECT s.id FROM sessions s JOIN below b ON s.parent_session_id = b.id) SELECT id FROM below)`;

function spent(t: TestEngine, where: string, id: string): bigint {
  const sum = t.db.db.prepare(`SELECT coalesce(sum(cost_pusd), 0) AS n FROM llm_calls WHERE ${where}`);
  return (sum.safeIntegers().get(id) as { n: bigint }).n;
}
function cappedDelegations(t: TestEngine): { worker: string; own: bigint }[] {
  const rows = t.db.db.prepare(
    'SELECT worker_session_id AS worker, max_cost_pusd AS own FROM delegations WHERE worker_session_id IS NOT NULL AND max_cost_pusd IS NOT NULL',
  );
  return rows.safeIntegers().all() as { worker: string; own: bigint }[];
}

/** Resolves at the n-th stored event, or when the turn is done. */
async function atEvent(t: TestEngine, n: number, done: Promise<void>): Promise<void> {
  let over = false;
  void done.then(() => {
    over = true;
  });
  await until(() => t.events.length >= n || over);
}

async function cancelOne(t: TestEngine, sessionId: string, turnId: string, ofWorker: boolean): Promise<void> {
  const active = t.engine.locks.activeTurns().find((turn) => turn.session_id !== sessionId);
  const target = ofWorker && active ? active : { session_id: sessionId, turn_id: turnId };
  await cancelTurn(t.engine, target.session_id, target.turn_id, null).catch((error) =>
    expect(error.code).toBe('turn_already_completed'),
  );
}

type Script = Parameters<NonNullable<Parameters<typeof startEngine>[0]['provider']>>[0];

/** Reports what a tokenizer could find: of each part its own share of the bytes, the same every time, close below all. */
function honest(adapter: ProviderAdapter): ProviderAdapter {
  return {
    ...adapter,
    stream: (request, signal, deliver) =>
      adapter.stream(request, signal, (event) => {
        if (event.type !== 'message.complete') deliver(event);
        else {
          const usage = { ...event.usage, input_tokens: honestTokens(request) };
          deliver({ ...event, usage, bill: billOf(request, usage) });
        }
      }),
  };
}

/** What the call is billed for: plainly, in two rounds, behind a model that declined, at a discount, or several of these. */
function billOf(request: CanonicalRequest, usage: TokenUsage): ReportedBill | null {
  const form = createHash('sha1').update(request.request_id).digest()[0]!;
  const first = Math.floor(usage.input_tokens / 3);
  const round = (kind: string, input: number, output: number, billed = true) => ({
    kind,
    model: null,
    billed,
    usage: { input, output, cached: 0, creation: 0, creation1h: 0, reasoning: 0 },
  });
  const rounds = [
    [],
    [round('message', first, 0), round('message', usage.input_tokens - first, usage.output_tokens)],
    [round('message', 12_345, 0, false), round('fallback_message', usage.input_tokens, usage.output_tokens)],
  ][form % 3]!;
  const service_tier = [null, 'flex'][(form >> 4) % 2]!;
  return { rounds, uses: new Map(), terms: { ...STANDARD_TERMS, service_tier }, rounds_unknown: false };
}

/** Each call of the ledger costs its tokens at its model's rates, halved where it has a discount; its rounds sum to it. */
function checkBills(t: TestEngine, rates: Rates): void {
  const perToken = new Map(
    TIERS.map((tier) => [
      MODELS[tier],
      [rates[tier].input, rates[tier].output].map((usd) => BigInt(Math.round(usd * 100)) * 10_000n),
    ]),
  );
  const read = <Row>(sql: string) => t.db.db.prepare(sql).safeIntegers().all() as Row[];
  type Sums = { model: string; input_tokens: bigint; output_tokens: bigint; cost_pusd: bigint; half: bigint };
  const calls = read<Sums>(
    `SELECT model, input_tokens, output_tokens, cost_pusd, coalesce(bill_json LIKE '%flex%', 0) AS half FROM llm_calls`,
  );
  for (const { model, input_tokens, output_tokens, cost_pusd, half } of calls) {
    const [input, output] = perToken.get(model)!;
    expect(cost_pusd * (1n + half)).toBe(input_tokens * input! + output_tokens * output!);
  }
  const sums = read<Sums & { calls: bigint }>(
    `SELECT c.model, c.input_tokens, c.output_tokens, c.cost_pusd - sum(r.cost_pusd) AS cost_pusd,
      c.input_tokens - sum(r.input_tokens * r.billed) AS half
     FROM llm_calls c JOIN llm_call_rounds r ON r.event_id = c.event_id GROUP BY c.event_id`,
  );
  for (const { cost_pusd, half } of sums) expect([cost_pusd, half]).toEqual([0n, 0n]);
}

function honestTokens(request: CanonicalRequest): number {
  const { head, messages } = requestPrompt(request);
  return [...head, ...messages].reduce((sum, { key, bytes }) => {
    const share = 0.9 + (createHash('sha1').update(key).digest()[0]! / 255) * 0.1;
    return sum + Math.floor(bytes * share);
  }, 0);
}

/** What the models say: a step for a call, its workers' steps by their task. */
function rules(name: string, steps: readonly Step[], match: Record<string, unknown>): unknown[] {
  const own = steps.map((step, i) => ({
    match: { ...match, call: i + 1 },
    respond: {
      usage: { output_tokens: step.output },
      delay_ms: step.delay,
      ...(step.workers.length === 0 && i < steps.length - 1
        ? { tool_calls: [call('list_files', {})] }
        : step.workers.length === 0
          ? { text: 'ok' }
          : {
              tool_calls: step.workers.map((worker, w) =>
                delegate(`${name}-${i}-${w}.`, {
                  tier: worker.tier,
                  ...(worker.background ? { background: true } : {}),
                  ...(worker.cap === null ? {} : { max_cost_usd: limit(worker.cap) }),
                }),
              ),
            }),
    },
  }));
  const end = {
    // Results of background workers make further calls.
    match,
    times: 'inf',
    respond: { text: 'ok', usage: { output_tokens: 50 } },
  };
  const below = steps.flatMap((step, i) =>
    step.workers.flatMap((worker, w) =>
      rules(`${name}-${i}-${w}`, worker.steps, { role: 'worker', user_contains: `${name}-${i}-${w}.` }),
    ),
  );
  return [...own, end, ...below];
}

function cost(
  prices: ReturnType<typeof priceTable>,
  tier: (typeof TIERS)[number],
  steps: readonly Step[],
  depth = 0,
): bigint {
  return steps.reduce(
    (sum, { output, workers }) =>
      sum +
      prices.cost(MODELS[tier], {
        input_tokens: INPUT[depth]!,
        output_tokens: output,
        cached_input_tokens: 0,
        cache_creation_input_tokens: 0,
        cache_creation_1h_input_tokens: 0,
        reasoning_tokens: 0,
        usage_estimated: false,
      }).cost_pusd +
      workers.reduce((all, worker) => all + cost(prices, worker.tier, worker.steps, depth + 1), 0n),
    0n,
  );
}

/** Dollars with six fraction digits, of millionths. */
function limit(millionths: number): string {
  return fromPusd((BigInt(Math.max(1, Math.round(millionths))) * 1_000_000n) as Parameters<typeof fromPusd>[0]);
}

function priceTable(of: Rates) {
  const models = Object.fromEntries(
    TIERS.map((tier) => [
      MODELS[tier],
      {
        input_per_mtok_usd: String(of[tier].input),
        output_per_mtok_usd: String(of[tier].output),
        multipliers: { service_tier: { flex: '0.5' } },
      },
    ]),
  );
  return tableOf(JSON.stringify({ pricing_version: 'random', models }));
}
