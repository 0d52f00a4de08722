// Implements `engine.workers` for lower folders: spawns a worker for a tool call, and closes delegations that were left open (04 §5, §13).
import type { WorkerSpawner } from '#core/ports/tool-port.ts';
import type { DelegationRecord } from '#protocol/delegate.ts';
import type { ToolUseBlock } from '#protocol/message.ts';
import { ok } from '#protocol/result.ts';
import { canonicalJson, sha256Hex } from '#protocol/text/canonical-json.ts';
import { ToolError, type ToolOutput } from '#protocol/tool.ts';
import { rereadAttachments } from '../definitions/session-files.ts';
import type { Entry, Workers } from '../state/delegation-runs.ts';
import type { DelegationEngine } from '../state/engine.ts';
import type { TurnPlan, TurnRun } from '../state/turn-run.ts';
import { RESTART_TEXT } from '../tool-call/tool-results.ts';
import { describeStarted, resumeBackground, startBackground } from './background-workers.ts';
import { closeOpenDelegations } from './close-delegation.ts';
import { hasSteered, isWorkerRunning, reportSteered, steerWorker } from './continue-worker.ts';
import { createWorkerControl } from './control-workers.ts';
import { resumeOutsideDelegations } from './outside-delegation.ts';
import { type NamedRequest, resolveNamedRequest } from './resolve-named-request.ts';
import { type ResolvedRequest, resolveRequest } from './resolve-request.ts';
import { describeResult, resumeWorker, spawnWorker } from './run-worker.ts';

type Input = Readonly<Record<string, unknown>>;

/** @param engine returns the engine that runs these workers; the two are created together */
export function createWorkerPort(engine: () => DelegationEngine): Workers {
  return {
    spawner: (run, call, entry) => createSpawner(engine(), run, call, entry),
    closeUnder: (turnId, reason, only) => closeOpenDelegations(engine(), turnId, { reason, only: only ?? null }),
    resumeBackground: (run) => resumeBackground(engine(), run),
    control: (run, call) => createWorkerControl(engine(), run, call),
    describeResult: (delegation) => describeResult(engine(), delegation),
    resumeOutside: (root, only) => resumeOutsideDelegations(engine(), root, only),
  };
}

/** The spawner of one call; null where the session is too deep to delegate (04 §11). */
function createSpawner(engine: DelegationEngine, run: TurnRun, call: ToolUseBlock, entry: Entry): WorkerSpawner | null {
  if (entry !== 'delegate') return createNamedSpawner(engine, run, call, entry);
  if (run.session.delegation_depth >= engine.config.delegation.delegate_depth) return null;
  return {
    async check(input) {
      const resolved = await resolveRequest(engine, run, input);
      if (resolved.ok) return [];
      return resolved.error;
    },
    shares: async () => [],
    async spawn(input) {
      const resolved = await resolveRequest(engine, run, input);
      const blocks = resolved.ok ? resolved.value.blocks : [];
      const known = run.resumed ? await findKnownWorker(engine, run, call, async () => ok(blocks)) : null;
      if (known) return known;
      refuseOtherInput(run, call, input);
      // The workspace may have changed since the check, e.g. while an approval was open for minutes.
      if (!resolved.ok)
        throw new ToolError('validation_error', resolved.error.map((i) => `${i.path}: ${i.message}`).join('\n'));
      return (await steerRunning(engine, run, call, resolved.value)) ?? startWorker(engine, run, call, resolved.value);
    },
  };
}

/** Resolved once per input: the request that was checked, and perhaps approved, is the request that runs. */
function createNamedSpawner(engine: DelegationEngine, run: TurnRun, call: ToolUseBlock, entry: Entry): WorkerSpawner {
  const resolved = new Map<string, NamedRequest>();
  async function resolveOnce(input: Input): Promise<NamedRequest> {
    const key = canonicalJson(input);
    const request =
      resolved.get(key) ??
      (await resolveNamedRequest(
        engine,
        run,
        { entry, name: entry === 'worker_call' ? String(input.worker) : call.name },
        input,
      ));
    resolved.set(key, request);
    return request;
  }
  return {
    async check(input) {
      await resolveOnce(input);
      return [];
    },
    shares: async (input) => (await resolveOnce(input)).shared,
    async spawn(input) {
      const reread = ({ request }: DelegationRecord) => rereadAttachments(engine, run.session, request.attachments);
      const known = run.resumed ? await findKnownWorker(engine, run, call, reread) : null;
      if (known) return known;
      refuseOtherInput(run, call, input);
      // The approved bytes were lost with the process.
      if (run.called.has(call.id) && Array.isArray(input.attachments) && input.attachments.length > 0)
        throw new ToolError('cancelled', RESTART_TEXT);
      const request = await resolveOnce(input);
      return (await steerRunning(engine, run, call, request)) ?? startWorker(engine, run, call, request);
    },
  };
}

/** A worker that still runs gets the task as a message, once; null = it does not run. */
async function steerRunning(
  engine: DelegationEngine,
  run: TurnRun,
  { id }: ToolUseBlock,
  { earlier, request }: ResolvedRequest,
): Promise<ToolOutput | null> {
  if (earlier === null) return null;
  if (run.resumed && (await hasSteered(engine, id, earlier))) return reportSteered(earlier);
  if (!isWorkerRunning(earlier)) return null;
  return steerWorker(engine, id, earlier, request);
}

function startWorker(
  engine: DelegationEngine,
  run: TurnRun,
  { id }: ToolUseBlock,
  resolved: ResolvedRequest,
): Promise<ToolOutput> {
  if (resolved.request.background === true) return startBackground(engine, run, id, resolved);
  return spawnWorker(engine, run, id, resolved);
}

/** The result of a call that had opened its worker before a restart. A background worker has been resumed with its turn. */
async function findKnownWorker(
  engine: DelegationEngine,
  run: TurnRun,
  { id }: ToolUseBlock,
  readBlocks: Parameters<typeof resumeWorker>[3],
): Promise<ToolOutput | null> {
  const known = await engine.store.delegations.get(id);
  if (known?.request.background === true && known.worker_session_id !== null)
    return describeStarted(known.worker_session_id);
  return resumeWorker(engine, run, id, readBlocks);
}

/** An input that was edited before the restart is lost; the rejected original must not be delegated in its place. */
function refuseOtherInput(run: Pick<TurnPlan, 'called'>, call: ToolUseBlock, input: Input): void {
  const called = run.called.get(call.id);
  if (called && called.input_hash !== sha256Hex(canonicalJson(input))) throw new ToolError('cancelled', RESTART_TEXT);
}
