// Reading a worker's answer as the JSON object its planner asked for, and asking again when it is not (04 §12).
import type { Issue } from '#protocol/errors.ts';
import { err, ok, type Result } from '#protocol/result.ts';
import { readJson } from '../parsing/json.ts';
import { MODEL_JSON } from '../parsing/limits.ts';

const MAX_REPORTED = 10;

/**
 * The object in a worker's last text.
 * @param validate the compiled schema; no issues = valid
 */
export function readStructured(
  text: string,
  validate: (value: unknown) => readonly Issue[],
): Result<Record<string, unknown>, readonly Issue[]> {
  const json = readJson(withoutFence(text.trim()), MODEL_JSON);
  if (!json.ok) return err([{ path: '$', message: json.error }]);
  const { value } = json;
  if (!isObject(value)) return err([{ path: '$', message: 'must be a JSON object' }]);
  const issues = validate(value);
  return issues.length === 0 ? ok(value) : err(issues);
}

/** The user message that starts a repair turn: at most 10 problems and the demand for the corrected object alone. */
export function repairMessage(issues: readonly Issue[]): string {
  return `Your last message is not the JSON object that was asked for:\n${problemLines(issues).join('\n')}\nAnswer with the corrected JSON object only, without any other text.`;
}

/** `path: problem`, at most 10 lines. */
export function problemLines(issues: readonly Issue[]): string[] {
  return issues.slice(0, MAX_REPORTED).map((issue) => `${issue.path}: ${issue.message}`);
}

/** The inside, where the whole text is one fenced block; a language tag may follow the opening fence. */
function withoutFence(text: string): string {
  const fence = /^(?:`{3,}|~{3,})/.exec(text)?.[0];
  const start = text.indexOf('\n') + 1;
  const end = text.length - (fence?.length ?? 0);
  const fenced = fence !== undefined && start > 0 && start <= end && text.endsWith(fence);
  return fenced && !text.slice(fence.length, start).includes('`') ? text.slice(start, end) : text;
}

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}
