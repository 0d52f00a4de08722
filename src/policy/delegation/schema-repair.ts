// Reading a worker's answer as the JSON object its planner asked for, and asking again when it is not (04 §12).
import type { Issue } from '../../kernel/errors.ts';
import { err, ok, type Result } from '../../kernel/result.ts';

const MAX_REPORTED = 10;
// The whole text, and nothing but it, is one fenced block; a language tag may follow the opening fence.
const FENCED = /^(`{3,}|~{3,})[^\n`]*\n([\s\S]*?)\n?[ \t]*\1$/;

/**
 * The object in a worker's last text.
 * @param validate the compiled schema; no issues = valid
 */
export function readStructured(
  text: string,
  validate: (value: unknown) => readonly Issue[],
): Result<Record<string, unknown>, readonly Issue[]> {
  const trimmed = text.trim();
  const body = FENCED.exec(trimmed)?.[2] ?? trimmed;
  let value: unknown;
  try {
    value = JSON.parse(body);
  } catch (error) {
    return err([{ path: '$', message: `is not JSON: ${error instanceof Error ? error.message : String(error)}` }]);
  }
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

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}
