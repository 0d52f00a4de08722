// Results of one message's tool calls, and the tool messages made of them in block order (01 §6.2).

import { truncateOutput } from '#core/policy/tools/tool-output.ts';
import type { Write } from '#core/ports/journal-writer.ts';
import { isoTime } from '#protocol/clock.ts';
import type { Issue } from '#protocol/errors.ts';
import { draft, type EventDraft } from '#protocol/event.ts';
import type { CallChanges } from '#protocol/file-change.ts';
import type { EventId, ToolUseId, TurnId } from '#protocol/ids.ts';
import {
  plainMetadata,
  type StoredMessage,
  type ToolResultBlock,
  type ToolResultContent,
  type ToolUseBlock,
} from '#protocol/message.ts';
import { canonicalJson } from '#protocol/text/canonical-json.ts';
import type { ToolCallStatus, ToolErrorClass, ToolOutput } from '#protocol/tool.ts';
import { readBudgetLines } from '../money/budget-notices.ts';
import { type Budgets, type Runtime, type Storage, safeName, safeText } from '../state/engine.ts';
import type { StartedCall, ToolResults, TurnPlan, TurnProgress, TurnRun } from '../state/turn-run.ts';

export const CANCELLED_TEXT = 'Tool call cancelled.';
export const CONCLUDED_TEXT = 'Tool call not started: the turn is to answer with what it has.';
export const RESTART_TEXT = 'Tool call interrupted by a server restart; it may or may not have taken effect.';
export const CUT_OFF_TEXT = 'Tool call not executed: the answer that holds it was cut off.';
export const FAILED_TEXT = 'Tool call not executed: the turn failed.';

/** Results of the turn's calls that are stored but not yet answered in its history. */
export async function readStoredResults(engine: Pick<Storage, 'store'>, turnId: TurnId): Promise<ToolResults> {
  const calls = await engine.store.turns.toolCalls(turnId);
  return new Map(
    calls.flatMap(({ id, answered, result }) => {
      if (answered || result === null) return [];
      return [[id, result] as const];
    }),
  );
}

/** The calls of the turn that had started. */
export async function readStartedCalls(
  engine: Pick<Storage, 'store'>,
  turnId: TurnId,
): Promise<ReadonlyMap<ToolUseId, StartedCall>> {
  const called = new Map<ToolUseId, StartedCall>();
  for (const { id, payload } of await engine.store.events.listOfTurn(turnId, ['tool.called']))
    called.set(payload.tool_use_id as ToolUseId, { event_id: id, input_hash: payload.input_hash as string });
  return called;
}

export function errorResult(id: ToolUseId, text: string): ToolResultBlock {
  return { type: 'tool_result', tool_use_id: id, content: [{ type: 'text', text }], is_error: true };
}

/**
 * The tool messages of one assistant message, in block order, with the writes that store them.
 * @param missing the text of a call without a result
 */
export function buildAnswers(
  engine: Runtime,
  run: Pick<TurnRun, 'session' | 'turn'>,
  calls: readonly ToolUseBlock[],
  { results, missing }: { readonly results: ToolResults; readonly missing: string },
): { readonly messages: readonly StoredMessage[]; readonly writes: readonly Write[] } {
  const messages: StoredMessage[] = [];
  const writes: Write[] = [];
  const at = engine.clock.now();
  for (const call of calls) {
    let result = results.get(call.id);
    if (!result) {
      result = errorResult(call.id, missing);
      writes.push({ kind: 'tool_call.settle', id: call.id, status: 'cancelled', result, at });
    }
    const message: StoredMessage = {
      id: engine.ids.message(),
      session_id: run.session.id,
      turn_id: run.turn.id,
      role: 'tool',
      content: [result],
      metadata: plainMetadata(call.id),
      created_at: isoTime(at),
      provider_raw: null,
    };
    messages.push(message);
    writes.push(
      { kind: 'message.insert', message },
      { kind: 'tool_call.answer', id: call.id, result_message_id: message.id },
    );
  }
  return { messages, writes };
}

// The stored end of a call: its result and its one terminal event in one transaction (09 §4 step 9, 09 §7).

/** Why a call ended without its tool's answer. */
export interface Refusal {
  readonly error_class: ToolErrorClass;
  readonly text: string;
}

export type Input = Readonly<Record<string, unknown>>;

export interface ToolOutcome {
  readonly status: Exclude<ToolCallStatus, 'pending'>;
  readonly result: ToolResultBlock;
  /** The terminal tool event. */
  readonly event_id: EventId;
}

/** The `tool.called` of a call and its start in monotonic milliseconds. */
export interface Started {
  readonly parent: EventId;
  readonly began: number;
}

/** The text of an unexpected fault: its details are in the log only. */
export const OPAQUE_TEXT = 'Tool execution failed.';

/** The content with the server's lines as its last block, so that no tool can write them. */
function withNotes(content: readonly ToolResultContent[], notes: readonly string[]): ToolResultContent[] {
  if (notes.length === 0) return [...content];
  return [...content, { type: 'text', text: notes.join('\n') }];
}

/** @param how `edited` is the input that ran, when the approver had changed it */
export async function settleCompleted(
  engine: Runtime & Storage & Budgets,
  run: TurnPlan & TurnProgress,
  call: ToolUseBlock,
  how: { readonly edited: Input | null; readonly output: ToolOutput; readonly started: Started },
): Promise<ToolOutcome> {
  const { edited } = how;
  const { parent, began } = how.started;
  const output = truncateOutput(how.output);
  const delegated = run.tools.some((tool) => tool.name === call.name && tool.spawns);
  const notes = [...(output.notes ?? []), ...(await readBudgetLines(engine, run, delegated))];
  const content = withNotes(output.content, notes);
  if (edited) content.unshift({ type: 'text', text: editNote(call.input, edited) });
  const result: ToolResultBlock = {
    type: 'tool_result',
    tool_use_id: call.id,
    content,
    is_error: !output.success,
  };
  const status = output.success ? 'succeeded' : 'failed';
  const events = await engine.journal.commit({
    writes: [
      ...(output.deliveries ?? []).map((id): Write => ({ kind: 'delivery.claim', id, read_by: call.id })),
      {
        kind: 'tool_call.settle',
        id: call.id,
        status,
        result,
        ...describeChanges(run, call, output),
        at: engine.clock.now(),
      },
    ],
    emit: [
      ...skillLoadedEvents(run, call, output),
      draft({
        type: 'tool.completed',
        session_id: run.session.id,
        turn_id: run.turn.id,
        parent,
        payload: {
          tool_use_id: call.id,
          success: output.success,
          output_size_bytes: countBytes(result),
          latency_ms: Math.round(engine.clock.monotonic() - began),
          files_modified: output.files_modified?.map((file) => safeName(engine, file)) ?? null,
          command_executed: output.command_executed === null ? null : safeName(engine, output.command_executed),
        },
      }),
    ],
  });
  return { status, result, event_id: events.at(-1)!.id };
}

/** Stored with the call's end: a read that was cut off earlier runs again after a restart and would be counted twice. */
function skillLoadedEvents(
  run: TurnPlan & TurnProgress,
  call: ToolUseBlock,
  { skill_loaded }: ToolOutput,
): EventDraft[] {
  if (skill_loaded === undefined) return [];
  return [
    draft({
      type: 'skill.loaded',
      session_id: run.session.id,
      turn_id: run.turn.id,
      parent: run.call_event_id,
      payload: { ...skill_loaded, triggered_by_tool_use_id: call.id },
    }),
  ];
}

/** The workspace changes of a call that ran, as far as known (20 §1). */
function describeChanges(
  run: Pick<TurnPlan, 'tools'>,
  call: ToolUseBlock,
  output: ToolOutput | null,
): { readonly changed?: CallChanges } {
  const shell = run.tools.find((tool) => tool.name === call.name)?.command_field !== undefined;
  const paths = output?.files_modified ?? [];
  if (paths.length === 0 && !shell) return {};
  const created = new Set(output?.files_created);
  const files = paths.map((path) => ({ path, change: created.has(path) ? ('created' as const) : ('edited' as const) }));
  return { changed: { files, shell } };
}

function countBytes(result: ToolResultBlock): number {
  let bytes = 0;
  for (const block of result.content)
    bytes += Buffer.byteLength(block.type === 'text' ? block.text : block.source.data);
  return bytes;
}

/** The approver's edits, as the model reads them (13 §7.5). */
function editNote(before: Input, after: Input): string {
  // A whole definition replaces the input and shares no key with it.
  if ('yaml' in after && !('yaml' in before)) return `[input edited by user before execution] ${JSON.stringify(after)}`;
  const changed: Record<string, unknown> = {};
  for (const key of new Set([...Object.keys(before), ...Object.keys(after)]))
    if (canonicalJson(before[key] ?? null) !== canonicalJson(after[key] ?? null)) changed[key] = after[key] ?? null;
  return `[input edited by user before execution] ${JSON.stringify(changed)}`;
}

/**
 * Stores a call that did not run or did not finish.
 * @param refusal `started` when it ran
 */
export async function settleRefused(
  engine: Runtime & Storage & Budgets,
  run: TurnPlan & TurnProgress,
  call: ToolUseBlock,
  refusal: Refusal & { readonly started?: Started },
): Promise<ToolOutcome> {
  const status = refusal.error_class === 'cancelled' ? 'cancelled' : 'failed';
  const truncated = truncateOutput({
    content: [{ type: 'text', text: refusal.text }],
    success: false,
    metadata: null,
    files_modified: null,
    command_executed: null,
  });
  const content = withNotes(truncated.content, await readBudgetLines(engine, run, false));
  const result: ToolResultBlock = { ...errorResult(call.id, ''), content };
  const message = refusal.text === OPAQUE_TEXT ? 'execution_error' : refusal.text;
  const events = await engine.journal.commit({
    writes: [
      {
        kind: 'tool_call.settle',
        id: call.id,
        status,
        result,
        ...(refusal.started && describeChanges(run, call, null)),
        at: engine.clock.now(),
      },
    ],
    emit: [
      draft({
        type: 'tool.failed',
        session_id: run.session.id,
        turn_id: run.turn.id,
        parent: refusal.started?.parent ?? run.call_event_id,
        payload: {
          tool_use_id: call.id,
          error_class: refusal.error_class,
          error_message: safeText(engine, message, run.session.workspace_path),
          latency_ms: refusal.started ? Math.round(engine.clock.monotonic() - refusal.started.began) : 0,
        },
      }),
    ],
  });
  return { status, result, event_id: events[0]!.id };
}

export async function settleInvalidInput(
  engine: Runtime & Storage & Budgets,
  run: TurnPlan & TurnProgress,
  call: ToolUseBlock,
  issues: readonly Issue[],
): Promise<ToolOutcome> {
  const lines = issues.map(({ path, message }) => `${path || '$'}: ${message}`);
  const refused = errorResult(call.id, lines.join('\n'));
  const result = { ...refused, content: withNotes(refused.content, await readBudgetLines(engine, run, false)) };
  const events = await engine.journal.commit({
    writes: [{ kind: 'tool_call.settle', id: call.id, status: 'failed', result, at: engine.clock.now() }],
    emit: [
      draft({
        type: 'tool.input_invalid',
        session_id: run.session.id,
        turn_id: run.turn.id,
        parent: run.call_event_id,
        payload: {
          tool_use_id: call.id,
          tool_name: call.name,
          validation_errors: lines.map((line) => safeName(engine, line)),
        },
      }),
    ],
  });
  return { status: 'failed', result, event_id: events[0]!.id };
}
