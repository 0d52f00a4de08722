// A delegation asked for from outside: checked at once, then a worker as a planner's call would get it (19 §3.1).
import {
  type DelegationReceipt,
  type DelegationResult,
  resultOf,
  type SubmitDelegationBody,
} from '#protocol/api/delegations.ts';
import { sleep } from '#protocol/clock.ts';
import type { DelegationRecord } from '#protocol/delegate.ts';
import { AppError } from '#protocol/errors.ts';
import type { ToolUseId } from '#protocol/ids.ts';
import type { Write } from '../ports/journal.ts';
import {
  type OutsideInput,
  outsideCaller,
  outsideFault,
  outsideRequest,
  startOutside,
} from './delegation/outside-delegation.ts';
import { goingDown } from './drain.ts';
import { requireBudget } from './money/budget-limits.ts';
import { liveSession } from './session/find-session.ts';
import type { Engine } from './state/engine.ts';
import { throwIfLost } from './state/interrupt.ts';

/**
 * Answers as soon as the delegation is stored, which is when it has its place among the session's delegations. Throws
 * `validation_error`, `not_found`, `session_already_ended`, `session_is_worker`,
 * `session_is_gateway`, `budget_exceeded`, `service_shutting_down`.
 * @param claim makes the row that remembers the answer; it is stored with the delegation
 */
export async function submitDelegation(
  engine: Engine,
  sessionId: string,
  body: SubmitDelegationBody,
  claim?: (status: number, body: unknown) => Write,
): Promise<DelegationReceipt> {
  const session = await liveSession(engine, sessionId);
  if (session.workspace_path === engine.gatewayFolder)
    throw new AppError(
      'session_is_gateway',
      'this session of the gateway has no workspace for a worker: its client names one with x-metis-workspace on its first call',
    );
  await requireBudget(engine, session);
  if (engine.draining.value) throw goingDown();
  let stored: (delegation: DelegationRecord) => void = () => {};
  const known = new Promise<DelegationReceipt>((resolve) => {
    stored = (delegation) => resolve(receiptOf(delegation));
  });
  const caller = await outsideCaller(engine, session, {
    claim: (delegation) => (claim ? [claim(202, receiptOf(delegation))] : []),
    stored,
  });
  const request = await outsideRequest(engine, caller, inputOf(body));
  try {
    return await Promise.race([known, startOutside(engine, caller, engine.ids.toolUse(), request).then(() => known)]);
  } catch (thrown) {
    throw outsideFault(engine, thrown);
  }
}

/** As the tool would be called. */
function inputOf({ worker, input, attachments, ...rest }: SubmitDelegationBody): OutsideInput {
  if (worker === undefined) return { worker: null, input: rest };
  return { worker, input: { input, ...(attachments === undefined ? {} : { attachments }) } };
}

function receiptOf({ tool_use_id, parent_session_id, worker_session_id }: DelegationRecord): DelegationReceipt {
  return { tool_use_id, session_id: parent_session_id, worker_session_id };
}

/** Resolves when the delegation no longer runs, at the latest after this time. Throws `TreeLost` where it goes on elsewhere. */
export async function waitForDelegation(
  engine: Engine,
  toolUseId: string,
  ms: number,
  signal: AbortSignal,
): Promise<void> {
  const run = engine.outside.get(toolUseId);
  if (!run) return;
  const enough = new AbortController();
  const either = AbortSignal.any([signal, enough.signal]);
  await Promise.race([run.done, sleep(engine.clock, ms, either).catch(() => {})]);
  enough.abort();
  throwIfLost(run.scope.signal);
}

/** What the delegation came to; null while it has not ended (04 §4.2). */
export async function delegationResult(engine: Engine, toolUseId: ToolUseId): Promise<DelegationResult | null> {
  const delegation = await engine.store.delegations.view(toolUseId);
  if (delegation === null || delegation.ended_at === null) return null;
  return resultOf(delegation);
}
