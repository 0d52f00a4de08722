// Requests whose cost no reservation can hold: refused under a limit (19 §2.5).

import { shownName } from '#core/policy/cut.ts';
import { unboundedOther } from '#core/policy/gateway/largest-bill.ts';
import type { OtherModel } from '#core/policy/gateway/other-models.ts';
import type { RequestFacts } from '#core/policy/gateway/request-facts.ts';
import { validationError } from '#protocol/errors.ts';
import type { ModelEntry } from '#protocol/model.ts';
import { fromPusd } from '#protocol/money.ts';
import { limitsOf, type Spender } from '../money/limits.ts';
import type { Engine } from '../state/engine.ts';

export const LIMIT_NAMES = {
  session: 'session',
  day: 'daily',
  key: "key's daily",
  delegation: 'delegation',
} as const;

/** Throws `validation_error` where a limit covers the call and the request lets it cost what nothing bounds. */
export async function requireBounded(
  engine: Engine,
  spender: Spender,
  model: ModelEntry,
  facts: RequestFacts,
): Promise<void> {
  if (!facts.background && facts.other_models.length === 0) return;
  const [limit] = await limitsOf(engine, spender, []);
  if (limit === undefined) return;
  const under = `not possible under the ${LIMIT_NAMES[limit.scope]} limit of ${fromPusd(limit.limit)} USD`;
  if (facts.background) {
    const why = `${under}: what a background answer costs is known only when a client fetches it`;
    const message = `${why}; send the request without background, or remove the limit`;
    throw validationError([{ path: 'background', message }]);
  }
  const { prices, registry } = engine;
  const other = unboundedOther({ prices, registry, model, facts });
  if (other === null) return;
  throw validationError([{ path: other.member, message: `${under}: ${whyUnbounded(other)}` }]);
}

function whyUnbounded({ name, uses, member }: OtherModel): string {
  if (name === '') return `the provider chooses the model of ${member}; name a model that GET /v1/models shows`;
  if (uses === null) return `the advisor may be asked without end; set its max_uses`;
  return `the model ${shownName(name)} has no price here; name one that GET /v1/models shows, or price it in a file of pricing.tables`;
}
