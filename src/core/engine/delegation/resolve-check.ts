// The check of a delegation and its rungs, resolved when the call is accepted (20 §10).
import { chooseRungModel, type WorkerModelRequest } from '#core/policy/routing/worker-model.ts';
import type { DelegateInput, DelegateRequest } from '#protocol/delegate.ts';
import type { Issue } from '#protocol/errors.ts';
import type { WorkerDefinition } from '#protocol/worker-definition.ts';
import { findCheck } from '../definitions/find-checks.ts';
import { readDelegationPolicies } from '../routing/route-environment.ts';
import type { Caller } from '../state/delegation-runs.ts';
import type { DelegationEngine } from '../state/engine.ts';

type ResolvedCheck = Pick<DelegateRequest, 'check' | 'on_fail'> & { readonly issues: readonly Issue[] };

/** The check by its name, and rungs that each have a model. Unknown or untrusted is an issue that lists what there is. */
export async function resolveCheck(
  engine: DelegationEngine,
  { session }: Caller,
  {
    check: name,
    on_fail,
    ...start
  }: Pick<DelegateInput, 'check'> & WorkerModelRequest & Pick<DelegateRequest, 'on_fail'>,
): Promise<ResolvedCheck> {
  if (name === null) {
    const issues = on_fail.length === 0 ? [] : [{ path: 'on_fail', message: 'needs a check' }];
    return { check: null, on_fail: [], issues };
  }
  const issues: Issue[] = [];
  const found = await findCheck(engine, session.workspace_path, name);
  if (!found.ok) issues.push({ path: 'check', message: found.error });
  const { policies } = await readDelegationPolicies(engine, session);
  for (const index of on_fail.keys()) {
    const model = chooseRungModel(start, on_fail.slice(0, index + 1), policies, engine.registry);
    if (!model.ok) issues.push({ path: `on_fail[${index}]`, message: model.error });
  }
  return { check: found.ok ? found.value : null, on_fail, issues };
}

/** The same for a named worker. */
export function resolveNamedCheck(
  engine: DelegationEngine,
  caller: Caller,
  // A snapshot of a definition from before it had the fields lacks them.
  { check = null, on_fail = [], model, tier, effort = null }: WorkerDefinition,
): Promise<ResolvedCheck> {
  return resolveCheck(engine, caller, { check, on_fail, model, tier, effort });
}
