// Counts over routing decisions: winners, rejections with their reasons, deferrals (07 §7.1).
import type { RoutingStats, TraceQuery } from '#protocol/analytics.ts';
import type { PayloadOf } from '#protocol/event.ts';
import { getProvider } from '#protocol/model.ts';
import { type PolicyEvaluation, SLOTS } from '#protocol/route.ts';
import { compareText } from '#protocol/text/compare-text.ts';

type Rejection = Omit<RoutingStats['rejections'][number], 'count'>;

export interface RouteCounter {
  add(decision: PayloadOf<'route.decided'>): void;
  result(): RoutingStats;
}

/**
 * Folds decisions into counts. A model or provider filter counts what is about that model: wins by it, rejections and
 * deferrals of it, refused turns that proposed it.
 */
export function createRouteCounter(filter: Pick<TraceQuery['filter'], 'model' | 'provider'>): RouteCounter {
  const wins = new Tally<{ model: string; policy: PolicyEvaluation['policy'] }>();
  const rejections = new Tally<Rejection>();
  const deferrals = new Tally<{ policy: PolicyEvaluation['policy']; reason: string }>();
  const refused = { routing_failed: 0, explicit_model_rejected: 0 };
  const unfiltered = filter.model === null && filter.provider === null;

  function isAbout(model: string | null): boolean {
    if (unfiltered || model === null) return unfiltered;
    return (
      (filter.model === null || filter.model === model) &&
      (filter.provider === null || filter.provider === getProvider(model))
    );
  }

  return {
    add({ refused: refusal, chain, chosen_model, winner_index }) {
      const winner = chain[winner_index];
      if (refusal === null && winner && isAbout(chosen_model)) wins.add({ model: chosen_model, policy: winner.policy });
      const rejected = chain.flatMap(countRejections);
      for (const rejection of rejected) if (isAbout(rejection.model)) rejections.add(rejection);
      if (refusal !== null && (unfiltered || rejected.some(({ model }) => isAbout(model)))) refused[refusal] += 1;
      for (const { policy, verdict, reason, candidate_model } of chain) {
        if (verdict === 'deferred' && isAbout(candidate_model)) deferrals.add({ policy, reason });
      }
    },
    result() {
      const byPolicy = (a: { policy: PolicyEvaluation['policy'] }, b: { policy: PolicyEvaluation['policy'] }) =>
        compareText(a.policy, b.policy);
      const winRows = wins.listRows((a, b) => compareText(a.model, b.model) || byPolicy(a, b));
      return {
        wins_by_policy: SLOTS.map((policy) => ({
          policy,
          count: winRows.reduce((sum, row) => sum + (row.policy === policy ? row.count : 0), 0),
        })),
        wins_by_model: winRows,
        hard_failures: refused.routing_failed,
        explicit_rejections: refused.explicit_model_rejected,
        rejections: rejections.listRows(
          (a, b) =>
            byPolicy(a, b) || compareText(a.model, b.model) || compareText(a.validation_failure, b.validation_failure),
        ),
        deferrals: deferrals.listRows((a, b) => byPolicy(a, b) || compareText(a.reason, b.reason)),
      };
    },
  };
}

/** A rule slot lists each rule it tried; its own verdict repeats the last of them and is not counted again. */
function countRejections({ policy, verdict, candidate_model, validation_failure, tried_rules }: PolicyEvaluation) {
  const tried = (tried_rules ?? []).map(
    (rule): Rejection => ({ policy, model: rule.candidate_model, validation_failure: rule.validation_failure }),
  );
  if (tried.length > 0 || verdict !== 'rejected' || candidate_model === null || validation_failure === null) {
    return tried;
  }
  return [{ policy, model: candidate_model, validation_failure }];
}

/** Counts equal records. */
class Tally<T extends object> {
  private readonly counts = new Map<string, T & { count: number }>();

  add(key: T): void {
    const id = Object.values(key).join('\n');
    const row = this.counts.get(id);
    if (row) row.count += 1;
    else this.counts.set(id, { ...key, count: 1 });
  }

  /** Most frequent first, ties by `compare`. */
  listRows(compare: (a: T, b: T) => number): (T & { count: number })[] {
    return [...this.counts.values()].sort((a, b) => b.count - a.count || compare(a, b));
  }
}
