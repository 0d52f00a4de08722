// Maps the end of a worker to its delegation's outcome, and the outcome to the planner's tool result (04 §4.2, §5.3, §7).
import type { DelegationRecord, FailureMode, InsufficientContextRequest } from '#protocol/delegate.ts';
import type { Issue } from '#protocol/errors.ts';
import type { WorkerChanges } from '#protocol/file-change.ts';
import { fromPusd, type Pusd } from '#protocol/money.ts';
import { err, ok, type Result } from '#protocol/result.ts';
import type { Disposition } from '#protocol/session.ts';
import type { TurnStopReason } from '#protocol/turn.ts';
import { cutText } from '../cut.ts';
import { readJson } from '../parsing/json.ts';
import { MODEL_JSON } from '../parsing/text-limits.ts';
import { formatChanges, formatCheck, formatProtected, formatUnapplied } from './worker-changes.ts';

// Reads a worker's answer as the requested JSON object, and builds the repair request when it is invalid (04 §12).

const MAX_REPORTED = 10;

/**
 * The object in a worker's last text.
 * @param validate the compiled schema; no issues = valid
 */
export function readStructured(
  text: string,
  validate: (value: unknown) => readonly Issue[],
): Result<Record<string, unknown>, readonly Issue[]> {
  const json = readJson(stripFence(text.trim()), MODEL_JSON);
  if (!json.ok) return err([{ path: '$', message: json.error }]);
  const { value } = json;
  if (!isObject(value)) return err([{ path: '$', message: 'must be a JSON object' }]);
  const issues = validate(value);
  if (issues.length > 0) return err(issues);
  return ok(value);
}

/** The user message that starts a repair turn: at most 10 problems and the demand for the corrected object alone. */
export function repairMessage(issues: readonly Issue[]): string {
  return `Your last message is not the JSON object that was asked for:\n${problemLines(issues).join('\n')}\nAnswer with the corrected JSON object only, without any other text.`;
}

/** `path: problem`, at most 10 lines. */
function problemLines(issues: readonly Issue[]): string[] {
  return issues.slice(0, MAX_REPORTED).map((issue) => `${issue.path}: ${issue.message}`);
}

/** The content of a text that is one fenced block; a language tag may follow the opening fence. */
function stripFence(text: string): string {
  const fence = /^(?:`{3,}|~{3,})/.exec(text)?.[0];
  const start = text.indexOf('\n') + 1;
  const end = text.length - (fence?.length ?? 0);
  const fenced = fence !== undefined && start > 0 && start <= end && text.endsWith(fence);
  if (fenced && !text.slice(fence.length, start).includes('`')) return text.slice(start, end);
  return text;
}

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

const MAX_PLANNER_CHARS = 100_000;
const NO_RETRY = 'do not start the same work again unless the user asks for it';

/** How a worker ended. `text` is its last text, complete or not; '' without one. */
export type WorkerEnd =
  /** No session was created: too many workers in this turn, or a failure before the spawn. */
  | { readonly kind: 'not_spawned'; readonly message: string }
  /** No model serves the tier, or only a more expensive one does and the call does not allow it. */
  | { readonly kind: 'no_model' }
  /** Routing refused the worker's turn. */
  | { readonly kind: 'routing_failed'; readonly message: string }
  | {
      readonly kind: 'completed';
      readonly stop_reason: TurnStopReason;
      readonly text: string;
      readonly llm_calls: number;
      /** The `max_tokens` of the call are used up. */
      readonly tokens_exhausted: boolean;
      /** A valid `_request_context` ended the turn. */
      readonly context_request: InsufficientContextRequest | null;
      /** The answer read against the output schema; null when none was asked for. */
      readonly structured: Result<Record<string, unknown>, readonly Issue[]> | null;
      /** The limit that refused the next model call; set for stop reason `budget_exceeded`. */
      readonly budget: { readonly scope: string; readonly left: Pusd } | null;
      /** Why the changes are not applied although the worker did well: no merge to check, or it was outdated each time. */
      readonly conflicts?: readonly string[];
    }
  /** Its check failed, and no rung is left; `report` is the end of the check's output with its exit code. */
  | { readonly kind: 'check_failed'; readonly text: string; readonly report: string }
  /** `turn.failed` or an exception; the message is scrubbed. */
  | { readonly kind: 'failed'; readonly message: string; readonly text: string }
  | { readonly kind: 'cancelled'; readonly scope: 'planner' | 'worker'; readonly text: string }
  | { readonly kind: 'timeout'; readonly seconds: number; readonly text: string };

export interface DelegateOutcome {
  readonly success: boolean;
  readonly output: string | Record<string, unknown>;
  readonly failure_mode: FailureMode | null;
  /** Stored in the record and in `delegate.failed`; null on success. */
  readonly error_message: string | null;
  /** Set exactly for `insufficient_context`. */
  readonly insufficient_context_request: InsufficientContextRequest | null;
  /** Set exactly for `cancelled_by_user`. */
  readonly cancel_scope: 'planner' | 'worker' | null;
  /** How the worker session ends (04 §5.4). */
  readonly disposition: Disposition;
  /** Paths that keep the changes of a success out of the workspace, found by its check. */
  readonly conflicts?: readonly string[];
}

export function workerOutcome(end: WorkerEnd): DelegateOutcome {
  switch (end.kind) {
    case 'not_spawned':
    case 'routing_failed':
      return failedOutcome('worker_error', `worker_error: ${end.message}`, '');
    case 'failed':
      return failedOutcome('worker_error', `worker_error: ${end.message}`, end.text);
    case 'no_model':
      return failedOutcome('no_model_available_for_tier', 'no_model_available_for_tier', '');
    case 'timeout':
      return failedOutcome('timeout', `timeout: worker exceeded ${end.seconds}s`, end.text);
    case 'cancelled': {
      const message =
        end.scope === 'worker' ? 'worker cancelled directly by the user, not by the planner' : 'cancelled_by_user';
      return {
        ...failedOutcome('cancelled_by_user', message, end.text),
        cancel_scope: end.scope,
        disposition: 'cancelled',
      };
    }
    case 'check_failed': {
      const parts = [end.text, end.report].filter((part) => part !== '');
      return failedOutcome('check_failed', 'check_failed', parts.join('\n\n'));
    }
    case 'completed':
      return completedOutcome(end);
  }
}

type PlannerResult = Pick<DelegationRecord, 'failure_mode' | 'error_message' | 'output' | 'worker_session_id'> & {
  readonly request?: Pick<DelegationRecord['request'], 'apply'>;
};

/** What the planner's model reads of a delegation. */
export interface PlannerView {
  /** The worker's output alone; empty where it is. */
  readonly texts: readonly string[];
  /** The server's lines, which are one block behind it. */
  readonly notes: readonly string[];
  readonly is_error: boolean;
}

/**
 * Usage, cost and dropped tools are not part of it.
 * @param workerLine names the worker and what continuing it costs; null where there is no worker
 */
export function formatForPlanner(result: PlannerResult & WorkerChanges, workerLine: string | null): PlannerView {
  const { text, cut } = cutOutput(result);
  const isJoined = result.failure_mode === null && result.request?.apply === 'together';
  const unapplied = formatUnapplied(result, result.worker_session_id, isJoined);
  const protectedFiles = formatProtected(result);
  const notes = [cut, formatCheck(result), formatChanges(result), protectedFiles, unapplied, workerLine];
  return {
    texts: text === '' ? [] : [text],
    notes: notes.filter((note) => note !== null),
    is_error: result.failure_mode !== null,
  };
}

/**
 * The text blocks of a background worker's result: a line that names the worker, then what a foreground call shows (20 §9).
 * A line of the worker's text that begins as one of the server's is indented, so that it cannot be taken for one.
 */
export function deliveryTexts(
  { failure_mode, worker_session_id }: Pick<PlannerResult, 'failure_mode' | 'worker_session_id'>,
  { texts, notes }: Pick<PlannerView, 'texts' | 'notes'>,
): readonly string[] {
  const end = failure_mode === null ? 'completed' : `failed: ${failure_mode}`;
  const blocks = [`[worker ${worker_session_id} ${end}]`, ...texts.map((text) => text.replace(/^\[/gm, ' ['))];
  if (notes.length > 0) blocks.push(notes.join('\n'));
  return blocks;
}

function formatOutput(result: PlannerResult): string {
  const { failure_mode, output, worker_session_id } = result;
  if (failure_mode !== null)
    return JSON.stringify({ error: errorText(result), output: output ?? '', worker_session_id });
  if (typeof output === 'string') return output;
  return JSON.stringify(output ?? '');
}

function cutOutput(result: PlannerResult): { readonly text: string; readonly cut: string | null } {
  const whole = formatOutput(result);
  if (whole.length <= MAX_PLANNER_CHARS) return { text: whole, cut: null };
  const cut = `[cut at ${MAX_PLANNER_CHARS} characters; the rest is in worker session ${result.worker_session_id}]`;
  return { text: cutText(whole, MAX_PLANNER_CHARS), cut };
}

/** `error` of the result: the failure mode, or its message where the mode has a reason. Null on success. */
function errorText(result: Pick<DelegationRecord, 'failure_mode' | 'error_message'>): string | null {
  const { failure_mode: mode, error_message: message } = result;
  if (mode === 'cancelled_by_user' && message !== null && message !== mode) return `${mode}: ${message}; ${NO_RETRY}`;
  const isExplained = mode === 'worker_error' || mode === 'timeout' || mode === 'budget_exceeded';
  if (!isExplained) return mode;
  return message ?? mode;
}

function completedOutcome(end: Extract<WorkerEnd, { kind: 'completed' }>): DelegateOutcome {
  if (end.context_request !== null) {
    return {
      ...failedOutcome('insufficient_context', 'insufficient_context', end.context_request),
      insufficient_context_request: end.context_request,
    };
  }
  switch (end.stop_reason) {
    case 'end_turn':
      return answerOutcome(end);
    case 'max_tokens':
      return failedOutcome('max_tokens_exceeded', 'max_tokens_exceeded', end.text);
    case 'budget_exceeded': {
      const reason = end.budget === null ? '' : `: ${end.budget.scope} limit, ${fromPusd(end.budget.left)} USD left`;
      return failedOutcome('budget_exceeded', `budget_exceeded${reason}`, end.text);
    }
    case 'tool_use':
      if (end.tokens_exhausted) return failedOutcome('max_tokens_exceeded', 'max_tokens_exceeded', end.text);
      return failedOutcome('worker_error', `worker_error: stopped after ${end.llm_calls} LLM calls`, end.text);
    case 'stop_sequence':
      return failedOutcome('worker_error', 'worker_error: stopped at a stop sequence', end.text);
  }
}

function answerOutcome(end: Extract<WorkerEnd, { kind: 'completed' }>): DelegateOutcome {
  if (end.structured?.ok === false) {
    const message = `output_schema_validation_failed: ${problemLines(end.structured.error).join('; ')}`;
    return failedOutcome('output_schema_validation_failed', message, end.text);
  }
  return {
    success: true,
    output: end.structured?.value ?? end.text,
    failure_mode: null,
    error_message: null,
    insufficient_context_request: null,
    cancel_scope: null,
    disposition: 'completed',
    ...(end.conflicts !== undefined && { conflicts: end.conflicts }),
  };
}

function failedOutcome(mode: FailureMode, message: string, output: DelegateOutcome['output']): DelegateOutcome {
  return {
    success: false,
    output,
    failure_mode: mode,
    error_message: message,
    insufficient_context_request: null,
    cancel_scope: null,
    disposition: 'failed',
  };
}
