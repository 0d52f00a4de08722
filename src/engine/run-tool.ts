// One tool call, in the three steps every call takes: prepare, execute, finalize (09 §4).
import { draft } from '../domain/event.ts';
import type { ToolResultBlock, ToolUseBlock } from '../domain/message.ts';
import {
  type ToolCallStatus,
  type ToolDefinition,
  ToolError,
  type ToolErrorClass,
  type ToolOutput,
} from '../domain/tool.ts';
import { Cancelled } from '../kernel/abort.ts';
import { canonicalJson, sha256Hex } from '../kernel/canonical-json.ts';
import type { Issue } from '../kernel/errors.ts';
import type { EventId } from '../kernel/ids.ts';
import { truncateOutput } from '../policy/tool-output.ts';
import type { Tool, ToolContext } from '../ports/tool.ts';
import { abandonable } from './abandon.ts';
import { approveCall } from './confirm.ts';
import { type Engine, safeText } from './context.ts';
import { createSpawner } from './delegate.ts';
import { CANCELLED_TEXT, errorResult } from './dispatch-tools.ts';
import { childScope } from './session-lock.ts';
import type { Slots } from './slots.ts';
import type { TurnRun } from './turn-run.ts';

export interface ToolOutcome {
  readonly status: Exclude<ToolCallStatus, 'pending'>;
  readonly result: ToolResultBlock;
  /** The terminal tool event. */
  readonly event_id: EventId;
}

type Input = Readonly<Record<string, unknown>>;

/** Why a call ended without an answer of its tool. */
interface Refusal {
  readonly error_class: ToolErrorClass;
  readonly text: string;
}

interface Prepared {
  readonly tool: Tool;
  readonly definition: ToolDefinition;
  readonly context: ToolContext;
  readonly input: Input;
  /** A person changed the input before it ran. */
  readonly edited: boolean;
  readonly stop: AbortController;
  detach(): void;
}

/** Runs one call to its stored result. Never throws for a tool's problem. */
export async function runTool(
  engine: Engine,
  run: TurnRun,
  call: ToolUseBlock,
  inputError: string | null,
  slots: Slots,
): Promise<ToolOutcome> {
  const definition = run.tools.find((t) => t.name === call.name);
  if (run.signal.aborted) return refuse(engine, run, call, cancelled());
  if (!definition)
    return refuse(engine, run, call, {
      error_class: 'not_found',
      text: `Tool '${call.name}' is not available in this session.`,
    });

  const { scope: stop, detach } = childScope(run.signal);
  const context = toolContext(engine, run, call, definition, stop.signal);
  const tool = engine.tools.create(call.name);
  try {
    const issues =
      inputError === null ? await inputIssues(engine, tool, call.input, context) : [{ path: '$', message: inputError }];
    if (issues.length > 0) return await invalidInput(engine, run, call, issues);
    const outside = await pathRefusal(tool, call.input, context);
    if (outside) return await refuse(engine, run, call, outside);

    const approval = await approveCall(engine, run, call, definition, async (input) => {
      const problems = await inputIssues(engine, tool, input, context);
      if (problems.length > 0) return problems;
      const outside = await pathRefusal(tool, input, context);
      return outside ? [{ path: definition.path_fields[0] ?? '$', message: outside.text }] : [];
    });
    if (!approval.ok) return await refuse(engine, run, call, approval.refusal);

    let release: () => void;
    try {
      release = await slots.take(run.signal);
    } catch {
      return await refuse(engine, run, call, cancelled());
    }
    try {
      const input = approval.input ?? call.input;
      return await execute(engine, run, call, {
        tool,
        definition,
        context,
        input,
        edited: approval.input !== null,
        stop,
        detach,
      });
    } finally {
      release();
    }
  } finally {
    detach();
  }
}

/** `path: message` problems of an input, by schema first and then by the tool's own rules. */
async function inputIssues(engine: Engine, tool: Tool, input: Input, context: ToolContext): Promise<readonly Issue[]> {
  const issues = engine.tools.validate(tool.definition.name, input);
  if (issues.length > 0 || !tool.check) return issues;
  return tool.check(input, context);
}

async function pathRefusal(tool: Tool, input: Input, context: ToolContext): Promise<Refusal | null> {
  const { definition } = tool;
  if (!definition.requires_workspace || context.files === null) return null;
  const use = definition.side_effects === 'write' ? 'write' : definition.name === 'list_files' ? 'list' : 'read';
  for (const field of definition.path_fields) {
    const value = input[field];
    for (const path of Array.isArray(value) ? value : [value]) {
      if (typeof path !== 'string') continue;
      try {
        await context.files.resolve(path, use);
      } catch (error) {
        if (!(error instanceof ToolError)) throw error;
        return { error_class: error.error_class, text: error.message };
      }
    }
  }
  return null;
}

function toolContext(
  engine: Engine,
  run: TurnRun,
  call: ToolUseBlock,
  definition: ToolDefinition,
  signal: AbortSignal,
): ToolContext {
  const { session, turn } = run;
  return {
    session_id: session.id,
    turn_id: turn.id,
    tool_use_id: call.id,
    workspace_path: session.workspace_path,
    files: definition.requires_workspace ? engine.workspaces.files(session.workspace_path) : null,
    signal,
    spawner: definition.name === 'delegate' ? createSpawner(engine, run, call) : null,
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

/** Null = no limit. */
function limitSeconds(engine: Engine, definition: ToolDefinition): number | null {
  const seconds =
    definition.timeout_seconds ??
    engine.config.tools.timeouts.per_tool[definition.name] ??
    CLASS_TIMEOUT[definition.side_effects];
  return seconds === 0 ? null : seconds;
}

async function execute(engine: Engine, run: TurnRun, call: ToolUseBlock, prepared: Prepared): Promise<ToolOutcome> {
  const { tool, definition, context, input, stop } = prepared;
  const json = canonicalJson(input);
  const called = await engine.journal.commit({
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
  const parent = called[0]!.id;
  const began = engine.clock.monotonic();
  const limit = effectiveLimit(context.timeout_seconds, input);
  let timedOut = false;
  const timer =
    limit === null
      ? null
      : engine.clock.after(limit * 1000, () => {
          timedOut = true;
          stop.abort(new Cancelled('timeout'));
        });
  const onStop = () => void tool.cancel().catch((err: unknown) => context.logger.warn({ err }, 'cancel failed'));
  stop.signal.addEventListener('abort', onStop, { once: true });
  try {
    if (stop.signal.aborted) throw stop.signal.reason;
    const output = await abandonable(engine, stop.signal, tool.execute(input, context), call.name);
    return await completed(engine, run, call, prepared, output, parent, began);
  } catch (thrown) {
    return await refuse(engine, run, call, refusalOf(engine, run, call, thrown, timedOut ? limit : null), {
      parent,
      began,
    });
  } finally {
    timer?.cancel();
    stop.signal.removeEventListener('abort', onStop);
  }
}

/** An input may ask for less time than the limit, never for more. */
function effectiveLimit(limit: number | null, input: Input): number | null {
  const asked = input.timeout_seconds;
  return limit !== null && typeof asked === 'number' && asked > 0 ? Math.min(limit, asked) : limit;
}

async function completed(
  engine: Engine,
  run: TurnRun,
  call: ToolUseBlock,
  prepared: Prepared,
  raw: ToolOutput,
  parent: EventId,
  began: number,
): Promise<ToolOutcome> {
  const output = truncateOutput(raw);
  const content = [...output.content];
  if (prepared.edited) content.unshift({ type: 'text', text: editNote(call.input, prepared.input) });
  const result: ToolResultBlock = {
    type: 'tool_result',
    tool_use_id: call.id,
    content,
    is_error: !output.success,
  };
  const status = output.success ? 'succeeded' : 'failed';
  const events = await engine.journal.commit({
    writes: [{ kind: 'tool_call.settle', id: call.id, status, result, at: engine.clock.now() }],
    emit: [
      draft({
        type: 'tool.completed',
        session_id: run.session.id,
        turn_id: run.turn.id,
        parent,
        payload: {
          tool_use_id: call.id,
          success: output.success,
          output_size_bytes: sizeOf(result),
          latency_ms: Math.round(engine.clock.monotonic() - began),
          files_modified: output.files_modified ? [...output.files_modified] : null,
          command_executed: output.command_executed,
        },
      }),
    ],
  });
  return { status, result, event_id: events[0]!.id };
}

function sizeOf(result: ToolResultBlock): number {
  let bytes = 0;
  for (const block of result.content)
    bytes += Buffer.byteLength(block.type === 'text' ? block.text : block.source.data);
  return bytes;
}

/** What a person changed, as the model is told (13 §7.5). */
function editNote(before: Input, after: Input): string {
  const changed: Record<string, unknown> = {};
  for (const key of new Set([...Object.keys(before), ...Object.keys(after)]))
    if (canonicalJson(before[key] ?? null) !== canonicalJson(after[key] ?? null)) changed[key] = after[key] ?? null;
  return `[input edited by user before execution] ${JSON.stringify(changed)}`;
}

function refusalOf(
  engine: Engine,
  run: TurnRun,
  call: ToolUseBlock,
  thrown: unknown,
  expiredAfter: number | null,
): Refusal {
  const partial = thrown instanceof ToolError && thrown.partial ? `\n${thrown.partial}` : '';
  if (expiredAfter !== null)
    return { error_class: 'timeout', text: `Tool '${call.name}' exceeded ${expiredAfter}s timeout.${partial}` };
  if (run.signal.aborted) return { error_class: 'cancelled', text: `${CANCELLED_TEXT}${partial}` };
  if (thrown instanceof ToolError) return { error_class: thrown.error_class, text: `${thrown.message}${partial}` };
  engine.log.error({ err: thrown, tool: call.name, tool_use_id: call.id }, 'a tool failed unexpectedly');
  return { error_class: 'execution_error', text: 'Tool execution failed.' };
}

function cancelled(): Refusal {
  return { error_class: 'cancelled', text: CANCELLED_TEXT };
}

/** Stores a call that did not run or did not finish. */
async function refuse(
  engine: Engine,
  run: TurnRun,
  call: ToolUseBlock,
  refusal: Refusal,
  ran: { readonly parent: EventId; readonly began: number } | null = null,
): Promise<ToolOutcome> {
  const status = refusal.error_class === 'cancelled' ? 'cancelled' : 'failed';
  const truncated = truncateOutput({
    content: [{ type: 'text', text: refusal.text }],
    success: false,
    metadata: null,
    files_modified: null,
    command_executed: null,
  });
  const result: ToolResultBlock = { ...errorResult(call.id, ''), content: [...truncated.content] };
  const message = refusal.text === 'Tool execution failed.' ? 'execution_error' : refusal.text;
  const events = await engine.journal.commit({
    writes: [{ kind: 'tool_call.settle', id: call.id, status, result, at: engine.clock.now() }],
    emit: [
      draft({
        type: 'tool.failed',
        session_id: run.session.id,
        turn_id: run.turn.id,
        parent: ran?.parent ?? run.call_event_id,
        payload: {
          tool_use_id: call.id,
          error_class: refusal.error_class,
          error_message: safeText(engine, message, run.session.workspace_path),
          latency_ms: ran ? Math.round(engine.clock.monotonic() - ran.began) : 0,
        },
      }),
    ],
  });
  return { status, result, event_id: events[0]!.id };
}

async function invalidInput(
  engine: Engine,
  run: TurnRun,
  call: ToolUseBlock,
  issues: readonly Issue[],
): Promise<ToolOutcome> {
  const lines = issues.map((i) => `${i.path === '' ? '$' : i.path}: ${i.message}`);
  const result = errorResult(call.id, lines.join('\n'));
  const events = await engine.journal.commit({
    writes: [{ kind: 'tool_call.settle', id: call.id, status: 'failed', result, at: engine.clock.now() }],
    emit: [
      draft({
        type: 'tool.input_invalid',
        session_id: run.session.id,
        turn_id: run.turn.id,
        parent: run.call_event_id,
        payload: { tool_use_id: call.id, tool_name: call.name, validation_errors: lines },
      }),
    ],
  });
  return { status: 'failed', result, event_id: events[0]!.id };
}
