// Runs one tool call, in the three steps of every call: prepare, execute, finalize (09 §4).

import { keyOfTool } from '#core/policy/tools/tool-names.ts';
import type { SharedFile, Tool, ToolContext, ToolSet } from '#core/ports/tool-port.ts';
import { Cancelled, cancelledBy } from '#protocol/abort.ts';
import type { Issue } from '#protocol/errors.ts';
import { draft } from '#protocol/event.ts';
import type { EventId } from '#protocol/ids.ts';
import type { ToolUseBlock } from '#protocol/message.ts';
import { canonicalJson, sha256Hex } from '#protocol/text/canonical-json.ts';
import { type ToolDefinition, ToolError, type ToolOutput } from '#protocol/tool.ts';
import { type Approval, approveCall, canShare, closeOpenApprovals } from '../approval/approve-call.ts';
import { createWorkerMaker } from '../definitions/make-worker.ts';
import { getFilesRoot, openSessionFiles } from '../definitions/session-files.ts';
import { createSkillShelf } from '../prompt/model-input.ts';
import {
  cancelScope,
  createChildScope,
  FAULT,
  Interrupted,
  isHandOver,
  type Slots,
  throwIfLost,
  withGrace,
} from '../state/concurrency.ts';
import type { Budgets, Runtime, Storage, ToolCallEngine, WorkspaceAccess } from '../state/engine.ts';
import { logFields, type StartedCall, type TurnPlan, type TurnProgress, type TurnRun } from '../state/turn-run.ts';
import {
  CANCELLED_TEXT,
  CONCLUDED_TEXT,
  type Input,
  OPAQUE_TEXT,
  RESTART_TEXT,
  type Refusal,
  type Started,
  settleCompleted,
  settleInvalidInput,
  settleRefused,
  type ToolOutcome,
} from './tool-results.ts';

// The checks before a call may run, and its context (09 §4 steps 3-4, 09 §1).

export interface InputFaults {
  /** `path: message` issues, from the schema or the tool's own rules. */
  readonly issues: readonly Issue[];
  /** The first path outside the allowed files, with its field. */
  readonly outside: (Refusal & { readonly field: string }) | null;
}

/** The faults of an input: of its form, else its paths, else the tool's own check. Throws the errors of `tool.check`. */
export async function findInputFaults(
  toolset: ToolSet,
  tool: Tool,
  input: Input,
  context: ToolContext,
): Promise<InputFaults> {
  const issues = toolset.validate(tool.definition.name, input);
  if (issues.length > 0) return { issues, outside: null };
  const outside = await findPathRefusal(tool, input, context);
  if (outside !== null || !tool.check) return { issues: [], outside };
  return { issues: await tool.check(input, context), outside: null };
}

async function findPathRefusal(tool: Tool, input: Input, context: ToolContext): Promise<InputFaults['outside']> {
  const { definition } = tool;
  if (!definition.requires_workspace || context.files === null) return null;
  const use = definition.path_use ?? (definition.side_effects === 'write' ? 'write' : 'read');
  for (const field of definition.path_fields) {
    const value = input[field];
    for (const path of [value].flat()) {
      if (typeof path !== 'string') continue;
      try {
        await context.files.resolve(path, use);
      } catch (error) {
        if (!(error instanceof ToolError)) throw error;
        return { field, error_class: error.error_class, text: error.message };
      }
    }
  }
  return null;
}

export function buildToolContext(
  engine: ToolCallEngine,
  run: TurnRun,
  call: ToolUseBlock,
  { definition, signal }: { readonly definition: ToolDefinition; readonly signal: AbortSignal },
): ToolContext {
  const { session, turn } = run;
  return {
    session_id: session.id,
    turn_id: turn.id,
    tool_use_id: call.id,
    workspace_path: getFilesRoot(session),
    files: definition.requires_workspace ? openSessionFiles(engine, session) : null,
    known: engine.files.knowledge(session.id),
    signal,
    spawner: definition.spawns ? engine.workers.spawner(run, call, definition.spawns) : null,
    control: definition.manages_workers ? engine.workers.control(run, call) : null,
    maker: definition.creates_workers ? createWorkerMaker(engine, run, call) : null,
    memory: session.is_worker
      ? null
      : { change: (change) => engine.workspaces.changeMemory(session.workspace_path, change) },
    skills: createSkillShelf(engine, session),
    is_worker: session.is_worker,
    timeout_seconds: limitSeconds(engine, definition),
    emit: async (event) => {
      await engine.journal.commit({
        emit: [{ ...event, session_id: session.id, turn_id: turn.id, parent: run.call_event_id }],
      });
    },
    logger: engine.log.child({ session_id: session.id, turn_id: turn.id, tool_use_id: call.id }),
  };
}

const CLASS_TIMEOUT = { none: 60, read: 60, write: 60, execute: 600, network: 600 } as const;

/** The time limit of a call: configured for the tool, else the tool's own, else its class's; null = none. */
function limitSeconds(
  engine: Pick<Runtime, 'config'>,
  { name, side_effects, timeout_seconds: own }: ToolDefinition,
): number | null {
  if (own === 0) return null;
  const { per_tool } = engine.config.tools.timeouts;
  const seconds = per_tool[keyOfTool(per_tool, name) ?? ''] ?? own ?? CLASS_TIMEOUT[side_effects];
  if (seconds === 0) return null;
  return seconds;
}

interface Prepared {
  readonly tool: Tool;
  readonly definition: ToolDefinition;
  readonly context: ToolContext;
  readonly input: Input;
  /** Set when the approver edited the input before it ran. */
  readonly edited: Input | null;
  readonly stop: AbortController;
  /** The call's `tool.called`, when it had started before a restart. */
  readonly called: EventId | null;
}

const CANCELLED: Refusal = { error_class: 'cancelled', text: CANCELLED_TEXT };
const CONCLUDED: Refusal = { error_class: 'cancelled', text: CONCLUDED_TEXT };

/**
 * Runs one call to its stored result. Never throws for a tool's problem; throws `Interrupted` when the turn is interrupted
 * before the call has a result.
 */
export async function runTool(
  engine: ToolCallEngine,
  run: TurnRun,
  given: ToolUseBlock,
  slots: Slots,
): Promise<ToolOutcome> {
  const definition = run.tools.find((t) => t.name === given.name);
  if (run.signal.aborted || isConcluded(run, given)) return refuseStopped(engine, run, given);
  if (!definition)
    return settleRefused(engine, run, given, {
      error_class: 'not_found',
      text: `Tool '${given.name}' is not available in this session.`,
    });
  const { scope: stop, detach } = createChildScope(run.signal);
  const tool = run.toolset.create(given.name);
  const call = { ...given, input: toPlainInput(tool, given.input) };
  const context = buildToolContext(engine, run, call, { definition, signal: stop.signal });
  try {
    const called = run.called.get(call.id) ?? null;
    if (called !== null && !canRunAgain(definition, call, called))
      return await settleRefused(engine, run, call, {
        error_class: 'cancelled',
        text: RESTART_TEXT,
        started: { parent: called.event_id, began: engine.clock.monotonic() },
      });
    let edited: Input | null = null;
    if (called === null) {
      let faults: InputFaults;
      let shared: readonly SharedFile[] = [];
      let payload: Readonly<Record<string, unknown>> | null = null;
      try {
        faults = await findInputFaults(run.toolset, tool, call.input, context);
        if (faults.issues.length === 0 && faults.outside === null) {
          shared = (await tool.shares?.(call.input, context)) ?? [];
          payload = (await tool.preview?.(call.input, context)) ?? null;
        }
      } catch (thrown) {
        return await settleRefused(engine, run, call, toToolRefusal(engine, run, call, { thrown, expiredAfter: null }));
      }
      if (faults.issues.length > 0) return await settleInvalidInput(engine, run, call, faults.issues);
      if (faults.outside) return await settleRefused(engine, run, call, faults.outside);
      const approval = await approveCall(engine, run, call, {
        definition,
        shared,
        payload,
        recheck: (input) => recheckEdit(engine, run, call, { tool, context, input: toPlainInput(tool, input) }),
      }).catch(async (err: unknown): Promise<Approval> => {
        throwIfLost(run.signal, err);
        engine.log.error(
          { err, ...logFields(run), tool: call.name, tool_use_id: call.id },
          'a confirmation failed; the call is refused',
        );
        await closeOpenApprovals(engine, run.session.root_session_id, (row) => row.tool_use_id === call.id);
        if (run.signal.aborted) return { ok: false, refusal: CANCELLED };
        return { ok: false, refusal: { error_class: 'user_denied', text: 'Denied by policy.' } };
      });
      if (!approval.ok && approval.refusal.error_class === 'cancelled') return await refuseStopped(engine, run, call);
      if (!approval.ok) return await settleRefused(engine, run, call, approval.refusal);
      edited = approval.input && toPlainInput(tool, approval.input);
    }
    const release = await slots.take(run.signal).catch(() => null);
    if (release === null) return await refuseStopped(engine, run, call);
    engine.applyGroups.get(call.id)?.holdSlot(call.id, release);
    try {
      if (engine.draining.value || isConcluded(run, call)) return await refuseStopped(engine, run, call);
      const input = edited ?? call.input;
      const event = called?.event_id ?? null;
      return await executeTool(engine, run, call, { tool, definition, context, input, edited, stop, called: event });
    } finally {
      release();
    }
  } finally {
    detach();
  }
}

/**
 * After a restart: whether a call that had started may be started again. An input that the approver had edited was lost
 * with the process, and the rejected original must not run in its place.
 */
function canRunAgain(definition: ToolDefinition, call: ToolUseBlock, called: StartedCall): boolean {
  if (definition.restartable) return true;
  const harmless = definition.side_effects === 'none' || definition.side_effects === 'read';
  return harmless && called.input_hash === sha256Hex(canonicalJson(call.input));
}

/** Whether the call must not start because its turn is to answer with what it has. A call that had started before a restart may end. */
function isConcluded(run: Pick<TurnPlan, 'conclusion' | 'called'>, call: ToolUseBlock): boolean {
  return run.conclusion.signal.aborted && !run.called.has(call.id);
}

/** A call that must not start any more: stays open when the turn resumes after a restart, is cancelled otherwise. */
export async function refuseStopped(
  engine: Runtime & Storage & Budgets,
  run: TurnPlan & TurnProgress,
  call: ToolUseBlock,
): Promise<ToolOutcome> {
  throwIfLost(run.signal);
  if (isHandOver(engine, run.signal)) throw new Interrupted('restart');
  if (!engine.draining.value && !run.signal.aborted) return settleRefused(engine, run, call, CONCLUDED);
  if (engine.draining.value) cancelScope(run.scope, new Cancelled('shutdown'));
  return settleRefused(engine, run, call, CANCELLED);
}

function toPlainInput(tool: Tool, input: Input): Record<string, unknown> {
  return { ...(tool.plain?.(input) ?? input) };
}

/** An edited input is checked like the original; it needs no second approval. */
async function recheckEdit(
  engine: Runtime & Storage & WorkspaceAccess,
  run: TurnPlan,
  call: ToolUseBlock,
  { tool, context, input }: { readonly tool: Tool; readonly context: ToolContext; readonly input: Input },
): Promise<readonly Issue[]> {
  try {
    if (tool.checkYaml && typeof input.yaml === 'string') return await tool.checkYaml(input.yaml, context);
    const { issues, outside } = await findInputFaults(run.toolset, tool, input, context);
    if (outside) return [{ path: outside.field, message: outside.text }];
    if (issues.length > 0) return issues;
    const shared = (await tool.shares?.(input, context)) ?? [];
    if (await canShare(engine, run, call, shared)) return [];
    return [{ path: 'attachments', message: 'denied by policy' }];
  } catch (error) {
    if (!(error instanceof ToolError)) throw error;
    return [{ path: '', message: error.message }];
  }
}

async function executeTool(
  engine: ToolCallEngine,
  run: TurnRun,
  call: ToolUseBlock,
  { tool, definition, context, input, edited, stop, called }: Prepared,
): Promise<ToolOutcome> {
  const started: Started = {
    parent: called ?? (await announceToolCall(engine, run, call, { definition, input })),
    began: engine.clock.monotonic(),
  };
  const limit = effectiveLimit(context.timeout_seconds, input);
  let timedOut = false;
  const expire = () => {
    timedOut = true;
    stop.abort(new Cancelled('timeout'));
  };
  const timer = limit === null ? null : engine.clock.after(limit * 1000, expire);
  const onStop = () => void tool.cancel().catch((err: unknown) => context.logger.warn({ err }, 'cancel failed'));
  stop.signal.addEventListener('abort', onStop, { once: true });
  let output: ToolOutput;
  try {
    if (stop.signal.aborted) throw stop.signal.reason;
    const work = tool.execute(input, context);
    // A worker is not abandoned as a whole: its own calls and tools are, and its closing events must precede this one.
    if (definition.spawns) output = await work;
    else output = await withGrace(engine, stop.signal, work, { ...logFields(run), what: call.name });
  } catch (thrown) {
    if (thrown instanceof Interrupted) throw thrown;
    throwIfLost(run.signal, thrown);
    if (!timedOut && run.signal.aborted && isHandOver(engine, run.signal)) throw new Interrupted('restart');
    // Not cancellable: a call must not settle before its delegation, whose end the store may have refused.
    if (definition.spawns)
      await engine.workers.closeUnder(run.turn.id, run.signal.aborted ? cancelledBy(run.signal) : FAULT, call.id);
    const refusal = toToolRefusal(engine, run, call, { thrown, expiredAfter: timedOut ? limit : null });
    return await settleRefused(engine, run, call, { ...refusal, started });
  } finally {
    timer?.cancel();
    stop.signal.removeEventListener('abort', onStop);
  }
  // Outside the try: a fault of the store must not turn a tool that succeeded into one that failed.
  return settleCompleted(engine, run, call, { edited, output, started });
}

/** `tool.called` is stored before the tool runs: after a crash it shows what may have taken effect (04 §13). */
async function announceToolCall(
  engine: Pick<Storage, 'journal'>,
  run: TurnPlan & TurnProgress,
  call: ToolUseBlock,
  { definition, input }: Pick<Prepared, 'definition' | 'input'>,
): Promise<EventId> {
  const json = canonicalJson(input);
  const events = await engine.journal.commit({
    emit: [
      draft({
        type: 'tool.called',
        session_id: run.session.id,
        turn_id: run.turn.id,
        parent: run.call_event_id,
        payload: {
          tool_use_id: call.id,
          tool_name: call.name,
          input_hash: sha256Hex(json),
          input_size_bytes: Buffer.byteLength(json),
          side_effects: definition.side_effects,
        },
      }),
    ],
  });
  return events[0]!.id;
}

/** An input may request less time than the limit, never more. */
function effectiveLimit(limit: number | null, input: Input): number | null {
  const asked = input.timeout_seconds;
  if (limit === null || typeof asked !== 'number' || asked <= 0) return limit;
  return Math.min(limit, asked);
}

function toToolRefusal(
  engine: Pick<Runtime, 'log'>,
  run: TurnRun,
  call: ToolUseBlock,
  { thrown, expiredAfter }: { readonly thrown: unknown; readonly expiredAfter: number | null },
): Refusal {
  const partial = thrown instanceof ToolError && thrown.partial ? `\n${thrown.partial}` : '';
  if (expiredAfter !== null)
    return { error_class: 'timeout', text: `Tool '${call.name}' exceeded ${expiredAfter}s timeout.${partial}` };
  if (run.signal.aborted) return { error_class: 'cancelled', text: `${CANCELLED_TEXT}${partial}` };
  if (thrown instanceof ToolError) return { error_class: thrown.error_class, text: `${thrown.message}${partial}` };
  engine.log.error(
    { err: thrown, ...logFields(run), tool: call.name, tool_use_id: call.id },
    'a tool failed unexpectedly',
  );
  return { error_class: 'execution_error', text: OPAQUE_TEXT };
}
