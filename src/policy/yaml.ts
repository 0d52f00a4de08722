// Text of a YAML file a person wrote -> plain value, or every fault of its syntax.
import { parseDocument } from 'yaml';
import { err, ok, type Result } from '../kernel/result.ts';

/** Longest text that is looked at: a file of settings is never near it. */
export const MAX_YAML_CHARACTERS = 1_048_576;

/** One document; null for an empty one. Duplicate keys are faults. Each error is one line without a path. */
export function parseYaml(text: string): Result<unknown, string[]> {
  if (text.length > MAX_YAML_CHARACTERS) return err([`longer than ${MAX_YAML_CHARACTERS} characters`]);
  try {
    const document = parseDocument(text);
    if (document.errors.length > 0) {
      return err(document.errors.map((e) => `malformed YAML: ${firstLine(e.message)}`));
    }
    return ok(document.toJS() ?? null);
  } catch (thrown) {
    // Nesting deeper than the stack, or aliases that would multiply without end.
    return err([`malformed YAML: ${firstLine(thrown instanceof Error ? thrown.message : String(thrown))}`]);
  }
}

/** A YAML mapping as `parseYaml` returns it. */
export function isMapping(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

function firstLine(message: string): string {
  return message.split('\n', 1)[0]!.replace(/:$/, '');
}
