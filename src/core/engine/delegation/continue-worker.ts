// A worker that goes on where an earlier one of the same session ended (20 §3).
import { workerTaskPrompt } from '#core/policy/context/worker-brief.ts';
import { formatWorkerLine, priceContinuation } from '#core/policy/delegation/continuation-price.ts';
import { promptCache } from '#core/policy/registry/adapter-config.ts';
import type { Write } from '#core/ports/journal-writer.ts';
import type { DelegateRequest, DelegationRecord } from '#protocol/delegate.ts';
import { AppError, type Issue } from '#protocol/errors.ts';
import type { SessionId, ToolUseId } from '#protocol/ids.ts';
import { textBlock } from '#protocol/message.ts';
import { err, ok, type Result } from '#protocol/result.ts';
import type { SessionRecord } from '#protocol/session.ts';
import { ToolError, type ToolOutput, toolText } from '#protocol/tool.ts';
import { promptTokens } from '#protocol/usage.ts';
import { cacheLifetime } from '../model-call/model-request.ts';
import { resolvePricingId } from '../money/call-price.ts';
import { readEarlier, readHistory } from '../session/read-history.ts';
import type { Caller } from '../state/delegation-runs.ts';
import type { Delegations, LiveSessions, ModelCatalog, Runtime, Storage } from '../state/engine.ts';
import { steerOrTakeLock } from '../turn/incoming-message.ts';

/** The worker to continue, which may still run. */
export interface EarlierWorker {
  readonly session: SessionRecord;
  readonly delegation: DelegationRecord;
}

/** The worker that a call names in `continue`, or why it cannot be continued. */
export async function findEarlierWorker(
  engine: Runtime & Storage,
  { session }: Pick<Caller, 'session'>,
  id: SessionRecord['id'],
): Promise<Result<EarlierWorker, Issue>> {
  const earlier = await engine.store.sessions.record(id);
  const delegation = earlier?.parent_session_id === session.id ? await engine.store.delegations.findByWorker(id) : null;
  if (earlier === null || delegation === null)
    return err({ path: 'continue', message: `this session has no worker ${id}` });
  const { max_continuations: most } = engine.config.delegation;
  if ((await countContinuations(engine, earlier)) >= most) {
    const message = `${id} is the last of ${most} continuations (delegation.max_continuations); start a new worker`;
    return err({ path: 'continue', message });
  }
  return ok({ session: earlier, delegation });
}

async function countContinuations(engine: Pick<Storage, 'store'>, session: SessionRecord): Promise<number> {
  const earlier = await readEarlier(engine, session);
  if (earlier === null) return 0;
  return 1 + (await countContinuations(engine, earlier));
}

/** The line that names a worker that has ended, with what continuing it costs. */
export async function describeContinuation(
  engine: Runtime & Storage & ModelCatalog,
  worker: SessionRecord,
): Promise<string> {
  const history = await readHistory(engine, worker);
  const last = history.findLast(({ role, metadata }) => role === 'assistant' && metadata.usage !== null);
  const { model, usage } = last?.metadata ?? {};
  if (last === undefined || model == null || usage == null) return formatWorkerLine(worker.id, null);
  const adapter = engine.registry.adapters.get(engine.registry.get(model)?.adapter ?? '');
  const lifetime = cacheLifetime(engine, { session: worker, history });
  const call = {
    pricing_id: resolvePricingId(engine, model),
    tokens: promptTokens(usage) + usage.output_tokens,
    answered_at: Date.parse(last.created_at),
    cache: adapter === undefined ? null : promptCache(adapter, lifetime),
  };
  return formatWorkerLine(worker.id, priceContinuation(engine.prices, call, engine.clock.now()));
}

export function isWorkerRunning({ delegation }: EarlierWorker): boolean {
  return delegation.ended_at === null;
}

const KEPT_MS = 7 * 24 * 3_600_000;

/** The row that is stored with a message of a call, so that the call sends it once. */
function steeringKey(toolUseId: ToolUseId, worker: SessionId) {
  return { method: 'STEER', path: worker, token_hash: '', key: toolUseId };
}

/** Whether this call has sent its task already, before the server was restarted. */
export async function hasSteered(
  { store }: Pick<Storage, 'store'>,
  toolUseId: ToolUseId,
  { session }: EarlierWorker,
): Promise<boolean> {
  const { method, path, token_hash, key } = steeringKey(toolUseId, session.id);
  return (await store.idempotency(method, path, token_hash, key)) !== null;
}

export function reportSteered({ session }: EarlierWorker): ToolOutput {
  return toolText(`[steered worker ${session.id}]`);
}

/**
 * Passes the task to a worker that still runs, in place of a delegation. Throws `ToolError` where its turn takes no
 * message.
 */
export async function steerWorker(
  engine: Runtime & Storage & LiveSessions & Delegations,
  toolUseId: ToolUseId,
  earlier: EarlierWorker,
  request: DelegateRequest,
): Promise<ToolOutput> {
  const { session } = earlier;
  const row = {
    ...steeringKey(toolUseId, session.id),
    session_id: session.root_session_id,
    body_hash: '',
    expires_at: engine.clock.now() + KEPT_MS,
  };
  const claimOnce = (status: number, receipt: unknown): Write => ({
    kind: 'idempotency.insert',
    row: { ...row, status, response_json: JSON.stringify(receipt) },
  });
  const content = [textBlock(workerTaskPrompt(request))];
  try {
    await steerOrTakeLock(engine, session, { content, override: null, turnId: engine.ids.turn(), claim: claimOnce });
  } catch (error) {
    if (!(error instanceof AppError)) throw error;
    // Between two turns, or with as many messages as may wait.
    throw new ToolError(
      'execution_error',
      `the worker ${session.id} cannot be steered now; continue it once it has ended`,
    );
  }
  return reportSteered(earlier);
}
