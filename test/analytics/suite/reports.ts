// What each report counts, and what it does not.
import { describe, expect, it } from 'vitest';
import { draft, type PayloadOf } from '#protocol/event.ts';
import { NO_CHANGES } from '#protocol/file-change.ts';
import type { RequestId } from '#protocol/ids.ts';
import { type PolicyEvaluation, SLOTS, type SlotName } from '#protocol/route.ts';
import type { ErrorClass } from '#protocol/scalars.ts';
import type { SessionRecord } from '#protocol/session.ts';
import { NO_FILTER } from '#store/report/cost-sql.ts';
import { ulidOf } from '../../support/messages.ts';
import { priceTableA, priceTableB } from '../../support/prices.ts';
import { notApplicable } from '../../support/route-chain.ts';
import { type Call, HAIKU, NOW, OPUS, type OpenWorld, SONNET } from '../world.ts';

const A = priceTableA();
const EARLIER = NOW - 3_600_000;
const TOKENS = { input_tokens: 1000, output_tokens: 100 };
const TRACE = { window: { from: 0, to: NOW }, filter: { session: null, model: null, provider: null } };

function call(session: SessionRecord, rest: Partial<Call> = {}): Call {
  return { session, at: EARLIER, model: HAIKU, prices: A, tokens: TOKENS, latency_ms: 100, ...rest };
}

function failed(session: SessionRecord, error_class: ErrorClass) {
  return draft({
    type: 'llm.call_failed',
    session_id: session.id,
    turn_id: null,
    parent: null,
    payload: {
      model: HAIKU,
      provider: 'anthropic',
      error_class,
      error_message_redacted: '',
      retry_count: 0,
      latency_ms: 5,
      request_id: ulidOf(1) as RequestId,
      is_worker: false,
      parent_session_id: null,
      root_session_id: session.id,
    },
  });
}

export function reportsSuite(openWorld: OpenWorld): void {
  describe('cost', () => {
    it('is empty, or zero, where nothing was called', async () => {
      const world = await openWorld();
      const zero = { cost_usd: '0', call_count: 0, avg_latency_ms: null, hit_rate: null, cache_write_share: null };
      expect(await world.rows('group_by=model')).toEqual([]);
      expect(await world.rows('group_by=session&include_workers=true')).toEqual([]);
      expect(await world.none()).toMatchObject(zero);
      expect(await world.none('', A)).toMatchObject({ ...zero, stamped_cost_usd: '0', missing_call_count: 0 });
      expect(await world.analytics.reliability(TRACE)).toEqual([]);
      expect((await world.analytics.routing(TRACE)).wins_by_policy).toEqual(
        SLOTS.map((policy) => ({ policy, count: 0 })),
      );
    });

    // Promise 07.21: Simulated calls are apart from real ones, and reported where there are no others.
    it('keeps simulated calls apart from real ones, and reports them where there are no others', async () => {
      const world = await openWorld();
      const [real, played] = [await world.planner(), await world.planner()];
      const scripted = { model: 'scripted:deep', over: { provider: 'scripted', cost_usd: '9', priced: true } };
      await world.record([call(played, scripted), call(played, scripted)]);
      const alone = await world.cost('group_by=model');
      expect(alone.simulated).toEqual({ call_count: 2, cost_usd: '18', included: true });
      expect(alone.totals).toMatchObject({ cost_usd: '18', call_count: 2 });

      await world.record([call(real, { over: { cost_usd: '0.5' } })]);
      for (const group of ['model', 'parent_session', 'root_session', 'day', 'none']) {
        const both = await world.cost(`group_by=${group}`);
        expect(both.simulated).toEqual({ call_count: 2, cost_usd: '18', included: false });
        expect(both.totals).toMatchObject({ cost_usd: '0.5', call_count: 1 });
      }
      expect(await world.rows('group_by=model')).toMatchObject([{ model: HAIKU }]);
      expect((await world.cost('group_by=none', A)).totals).toMatchObject({ call_count: 1 });
      const own = await world.cost(`group_by=none&parent_session=${played.id}`);
      expect([own.simulated.included, own.totals.cost_usd]).toEqual([true, '18']);
      const saved = await world.analytics.savings(
        { window: { from: 0, to: NOW }, filter: NO_FILTER, baseline: OPUS },
        A,
      );
      expect(saved).toMatchObject({ rows_total: 1, simulated: { call_count: 2, included: false } });
    });

    // Promise 07.6: Trees sum to the whole, planner and workers to their tree.
    it('of trees sums to the whole, and planner and workers to each tree', async () => {
      const world = await openWorld();
      for (const calls of [1, 2, 3]) {
        const planner = await world.planner();
        const worker = await world.worker(planner);
        await world.record([call(planner, { model: OPUS }), ...Array.from({ length: calls }, () => call(worker))]);
      }
      const { data, totals } = await world.cost('group_by=parent_session');
      const rows = data as Awaited<ReturnType<typeof world.rows>>;
      expect(rows.map((r) => [r.cost_usd, r.planner_cost_usd, r.worker_cost_usd, r.worker_call_count])).toEqual([
        ['0.027', '0.0225', '0.0045', 3],
        ['0.0255', '0.0225', '0.003', 2],
        ['0.024', '0.0225', '0.0015', 1],
      ]);
      expect(totals.cost_usd).toBe('0.0765');
      expect((await world.none()).cost_usd).toBe('0.0765');
    });

    // Promise 07.15: A grandchild lies under its parent, all under their root.
    // Promise 13.11: A tree of three is one row by root and told apart by worker name.
    it('puts a grandchild under its parent and all under their root', async () => {
      const world = await openWorld();
      const planner = await world.planner();
      const child = await world.worker(planner, { name: 'orchestrator' });
      const grandchild = await world.worker(child, { name: 'evaluator' });
      await world.record([call(planner, { model: OPUS }), call(child, { model: SONNET }), call(grandchild)]);
      const parents = await world.rows('group_by=parent_session');
      expect(parents.map((r) => [r.parent_session_id, r.call_count, r.worker_call_count])).toEqual([
        [planner.id, 2, 1],
        [child.id, 1, 1],
      ]);
      const roots = await world.rows('group_by=root_session');
      expect(roots).toMatchObject([{ root_session_id: planner.id, call_count: 3, worker_call_count: 2 }]);
      const named = await world.rows('group_by=worker_name&order=key');
      expect(named.map((r) => [r.worker_name, r.call_count])).toEqual([
        ['evaluator', 1],
        ['orchestrator', 1],
        [null, 1],
      ]);
    });

    it('narrows by every filter, also by several at once', async () => {
      const world = await openWorld();
      const [first, second] = [await world.planner('a'.repeat(64)), await world.planner('b'.repeat(64))];
      const worker = await world.worker(first, { tier: 'deep', name: 'scout' });
      await world.record([
        call(first),
        call(second, { model: 'openai:gpt-5' }),
        call(worker, { at: EARLIER - 7_200_000 }),
      ]);
      const calls = async (filter: string) => {
        const counts = [(await world.none(filter)).call_count, (await world.none(filter, A)).call_count];
        expect(counts[0]).toBe(counts[1]);
        return counts[0];
      };
      expect(await calls(`session=${first.id}`)).toBe(1);
      expect(await calls(`parent_session=${first.id}`)).toBe(2);
      expect(await calls('provider=openai')).toBe(1);
      expect(await calls(`model=${HAIKU}`)).toBe(2);
      expect(await calls(`workspace_hash=${'b'.repeat(64)}`)).toBe(1);
      expect(await calls('delegation_tier=deep')).toBe(1);
      expect(await calls('worker_name=scout')).toBe(1);
      expect(await calls('worker_name=nobody')).toBe(0);
      expect(await calls(`parent_session=${first.id}&include_workers=false&model=${HAIKU}`)).toBe(1);
    });

    // Promise 07.7: A tampered derived cost moves no report.
    it('is not moved by what other events say about it', async () => {
      const world = await openWorld();
      const planner = await world.planner();
      const worker = await world.worker(planner);
      await world.record([call(planner), call(worker)]);
      await world.emit(EARLIER, [
        draft({
          type: 'delegate.completed',
          session_id: planner.id,
          turn_id: null,
          parent: null,
          payload: {
            tool_use_id: worker.parent_tool_use_id!,
            worker_session_id: worker.id,
            success: true,
            output_size_bytes: 1,
            worker_total_cost_usd: '0.0015',
            pricing_version: 'A',
            turn_count: 1,
            llm_call_count: 1,
            tool_call_count: 0,
            input_tokens: 0,
            output_tokens: 0,
            wall_time_seconds: 1,
            model: HAIKU,
            ...NO_CHANGES,
          },
        }),
      ]);
      const everything = async () =>
        JSON.stringify([
          await world.cost('group_by=parent_session'),
          await world.cost('group_by=session&include_workers=true'),
          await world.analytics.savings({ ...TRACE, filter: NO_FILTER, baseline: 'planner' }, A),
          await world.analytics.reliability(TRACE),
          await world.analytics.routing(TRACE),
        ]);
      const before = await everything();
      const of = "type = 'delegate.completed'";
      const [told] = await world.stored(`SELECT payload_json FROM events WHERE ${of}`);
      const other = JSON.stringify({ ...JSON.parse(String(told?.payload_json)), worker_total_cost_usd: '99' });
      await world.execute(
        `UPDATE event_rows SET payload_json = ? WHERE id IN (SELECT id FROM events WHERE ${of})`,
        other,
      );
      expect(await world.stored(`SELECT payload_json FROM events WHERE ${of}`)).toEqual([{ payload_json: other }]);
      expect(await everything()).toBe(before);
    });
  });

  describe('a model without a price', () => {
    // Promise 07.12: A call without a price is shown, and priced by a version that knows it.
    it('is shown with its calls, and priced again by a version that knows it', async () => {
      const world = await openWorld();
      const session = await world.planner();
      await world.record([call(session, { model: 'nope:model' })]);
      expect(await world.rows('group_by=model')).toMatchObject([
        { model: 'nope:model', cost_usd: '0', unpriced_call_count: 1 },
      ]);
      const knowing = A.withOverlay('o1', { 'nope:model': { input_per_mtok_usd: '2', output_per_mtok_usd: '10' } });
      expect(await world.rows('group_by=model', knowing)).toMatchObject([
        { cost_usd: '0.003', stamped_cost_usd: '0', unpriced_call_count: 0, missing_call_count: 0 },
      ]);
      expect((await world.none()).cost_usd).toBe('0');
    });

    it('keeps its stamped cost under a version that lacks it, and is left out of savings', async () => {
      const world = await openWorld();
      const session = await world.planner();
      const knowing = A.withOverlay('o1', { 'nope:model': { input_per_mtok_usd: '2', output_per_mtok_usd: '10' } });
      await world.record([call(session, { model: 'nope:model', prices: knowing }), call(session)]);
      expect(await world.none('', priceTableB())).toMatchObject({
        cost_usd: '0.0042',
        stamped_cost_usd: '0.0045',
        missing_call_count: 1,
        unpriced_call_count: 0,
      });
      const savings = { window: TRACE.window, filter: NO_FILTER, baseline: HAIKU };
      expect(await world.analytics.savings(savings, A)).toMatchObject({
        actual_repriced_usd: '0.0015',
        baseline_repriced_usd: '0.0015',
        savings_usd: '0',
        savings_pct: 0,
        actual_stamped_usd: '0.0045',
        rows_total: 2,
        rows_missing_from_price_table: 1,
      });
    });
  });

  describe('reliability', () => {
    it('tells completed, cancelled and failed apart, and times only the calls that finished', async () => {
      const world = await openWorld();
      const session = await world.planner();
      const times = Array.from({ length: 10 }, (_, i) => (i + 1) * 100);
      await world.record([
        ...times.map((latency_ms) => call(session, { latency_ms })),
        call(session, { latency_ms: 9999, over: { stop_reason: 'cancelled', error_class: 'cancelled' } }),
        call(session, { latency_ms: 9999, over: { stop_reason: 'cancelled', error_class: 'network' } }),
        call(session, { model: OPUS }),
      ]);
      await world.emit(EARLIER, [
        failed(session, 'rate_limit'),
        failed(session, 'rate_limit'),
        failed(session, 'auth'),
      ]);
      expect(await world.analytics.reliability({ ...TRACE, filter: { ...TRACE.filter, model: HAIKU } })).toEqual([
        {
          model: HAIKU,
          provider: 'anthropic',
          calls: 15,
          completed: 10,
          cancelled: 1,
          failed: 4,
          failures: [
            { error_class: 'rate_limit', count: 2 },
            { error_class: 'auth', count: 1 },
            { error_class: 'network', count: 1 },
          ],
          failure_rate: 0.266667,
          p50: 550,
          p95: 955,
          avg_latency_ms: 550,
          sample_size: 10,
        },
      ]);
      expect((await world.analytics.reliability(TRACE)).map((row) => row.model)).toEqual([HAIKU, OPUS]);
    });

    // Promise 07.13: A cancelled call costs but is not timed; a failed one is only in reliability.
    it('counts a cancelled call in cost but not in its average latency, a failed one nowhere in cost', async () => {
      const world = await openWorld();
      const session = await world.planner();
      await world.record([
        call(session, { latency_ms: 100 }),
        call(session, { latency_ms: 9999, over: { stop_reason: 'cancelled', error_class: 'cancelled' } }),
      ]);
      await world.emit(EARLIER, [failed(session, 'cancelled')]);
      expect(await world.none()).toMatchObject({ call_count: 2, cost_usd: '0.003', avg_latency_ms: 100 });
      expect(await world.none('', A)).toMatchObject({ call_count: 2, avg_latency_ms: 100 });
      expect(await world.analytics.reliability(TRACE)).toMatchObject([
        { calls: 3, completed: 1, cancelled: 2, failed: 0, failures: [], failure_rate: 0, sample_size: 1 },
      ]);
    });

    it('has no percentiles for a model that never answered, and forgets what was pruned', async () => {
      const world = await openWorld();
      const session = await world.planner();
      await world.emit(EARLIER, [failed(session, 'auth')]);
      expect(await world.analytics.reliability(TRACE)).toMatchObject([
        { calls: 1, failed: 1, failure_rate: 1, p50: null, p95: null, avg_latency_ms: null, sample_size: 0 },
      ]);
      await world.record([call(session)]);
      await world.journal.prune(NOW, false);
      expect(await world.analytics.reliability(TRACE)).toEqual([]);
      expect((await world.none()).call_count).toBe(1);
    });

    it('keeps to its window and session', async () => {
      const world = await openWorld();
      const [one, other] = [await world.planner(), await world.planner()];
      await world.record([call(one), call(other), call(other, { at: EARLIER - 1000 })]);
      const calls = async (query: typeof TRACE) => (await world.analytics.reliability(query))[0]?.calls;
      expect(await calls(TRACE)).toBe(3);
      expect(await calls({ ...TRACE, window: { from: EARLIER, to: NOW } })).toBe(2);
      expect(await calls({ ...TRACE, filter: { ...TRACE.filter, session: other.id as never } })).toBe(2);
    });
  });

  describe('routing', () => {
    function decided(
      session: SessionRecord,
      slots: Partial<Record<SlotName, Partial<PolicyEvaluation>>>,
      rest: Partial<PayloadOf<'route.decided'>> = {},
    ) {
      const chain = SLOTS.map((policy) => notApplicable(policy, slots[policy]));
      const winner_index = chain.findIndex((entry) => entry.verdict === 'chose');
      const payload = {
        winner_index,
        elapsed_ms: 1,
        refused: null,
        fallback_costlier: false,
        requested_model: null,
        facts: null,
        chain,
        ...rest,
      };
      const chosen_model = chain[winner_index]?.candidate_model ?? '';
      return draft({
        type: 'route.decided',
        session_id: session.id,
        turn_id: null,
        parent: null,
        payload: { chosen_model, chosen_effort: null, ...payload },
      });
    }
    const rejected = { verdict: 'rejected', candidate_model: OPUS, validation_failure: 'no_tool_support' } as const;

    // Promise 07.14: A turn nobody could serve is one hard failure with its rejections and no win.
    it('counts a turn that no slot could serve once, with a rejection per slot and no win', async () => {
      const world = await openWorld();
      const session = await world.planner();
      const slots = { manual_sticky: rejected, workspace_default: rejected, global_default: rejected };
      await world.emit(EARLIER, [decided(session, slots, { refused: 'routing_failed' })]);
      const stats = await world.analytics.routing(TRACE);
      expect(stats.hard_failures).toBe(1);
      expect(stats.rejections.map((r) => [r.policy, r.count])).toEqual([
        ['global_default', 1],
        ['manual_sticky', 1],
        ['workspace_default', 1],
      ]);
      expect(stats.wins_by_policy.every((win) => win.count === 0)).toBe(true);
    });

    // Promise 07.14: Two tried rules and a choice are two rejections and one win.
    it('counts two tried rules and then a choice as two rejections and one win of the rule slot', async () => {
      const world = await openWorld();
      const session = await world.planner();
      const tried_rules = ['r1', 'r2'].map((rule_name) => ({
        rule_name,
        candidate_model: OPUS,
        candidate_effort: null,
        validation_failure: 'no_tool_support' as const,
      }));
      await world.emit(EARLIER, [
        decided(session, { rule: { verdict: 'chose', candidate_model: HAIKU, rule_name: 'r3', tried_rules } }),
      ]);
      const stats = await world.analytics.routing(TRACE);
      expect(stats.rejections).toEqual([
        { policy: 'rule', model: OPUS, validation_failure: 'no_tool_support', count: 2 },
      ]);
      expect(stats.wins_by_policy.filter((win) => win.count > 0)).toEqual([{ policy: 'rule', count: 1 }]);
      expect(stats.wins_by_model).toEqual([{ model: HAIKU, policy: 'rule', count: 1 }]);
    });

    it('keeps to its window and session', async () => {
      const world = await openWorld();
      const [one, other] = [await world.planner(), await world.planner()];
      const won = (session: SessionRecord) => decided(session, { rule: { verdict: 'chose', candidate_model: HAIKU } });
      await world.emit(EARLIER, [won(one), won(other)]);
      await world.emit(NOW, [won(one)]);
      const wins = async (query: typeof TRACE) => (await world.analytics.routing(query)).wins_by_model[0]?.count;
      expect(await wins(TRACE)).toBe(2);
      expect(await wins({ ...TRACE, filter: { ...TRACE.filter, session: one.id as never } })).toBe(1);
    });
  });
}
