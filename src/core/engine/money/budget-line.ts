// What a model is told of the money that is left, as lines at the end of tool results (20 §5).
import type { ToolResultContent } from '#protocol/message.ts';
import { fromPusd } from '#protocol/money.ts';
import type { Engine } from '../state/engine.ts';
import type { TurnRun } from '../state/turn-run.ts';
import { leftOf, limitsOf, reservedOf } from './limits.ts';

/**
 * The content with what this result has to say of the budget: a warning that was given since the last one, and behind a
 * delegation what is left of the tightest limit.
 */
export async function withBudgetLines(
  engine: Engine,
  run: TurnRun,
  content: readonly ToolResultContent[],
  delegated: boolean,
): Promise<ToolResultContent[]> {
  if (!engine.config.budgets.show_to_model) return [...content];
  // Taken before the next await, so that of parallel results one says it.
  const warned = run.budget_warned;
  run.budget_warned = false;
  if (!warned && !delegated) return [...content];
  const left = await tightest(engine, run);
  if (left === null) return [...content];
  const lines = [...(warned ? [`[budget warning: ${left}]`] : []), ...(delegated ? [`[budget: ${left}]`] : [])];
  return [...content, ...lines.map((text) => ({ type: 'text' as const, text }))];
}

/** `$0.42 of $2 left` of the limit with the least left, as it is at this moment; null where none covers the turn. */
async function tightest(engine: Engine, run: TurnRun): Promise<string | null> {
  for (;;) {
    const limits = await limitsOf(engine, run.session, run.caps);
    const seen = engine.budget.settlements;
    const spent = await Promise.all(limits.map((limit) => limit.spent()));
    // A call that settled meanwhile is in neither sum.
    if (seen !== engine.budget.settlements) continue;
    const rest = limits.map(({ limit, pool }, i) => ({
      limit,
      left: leftOf(limit, spent[i]!, reservedOf(engine, pool)),
    }));
    const [first, ...others] = rest;
    if (first === undefined) return null;
    const least = others.reduce((a, b) => (b.left < a.left ? b : a), first);
    return `$${fromPusd(least.left)} of $${fromPusd(least.limit)} left`;
  }
}
