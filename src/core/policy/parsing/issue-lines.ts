// Faults that zod found, as lines a person can act on: `<key path>: <problem>`.
import type { z } from 'zod';
import { plainIssues } from './plain-issue.ts';

/**
 * One line per fault.
 * @param at key path of the value that was checked
 */
export function issueLines(error: z.ZodError, at: string): string[] {
  return plainIssues(error).map(({ path, message }) => `${dotted(path, at)}: ${message}`);
}

function dotted(path: readonly PropertyKey[], at: string): string {
  return path.reduce<string>(
    (prefix, key) => (typeof key === 'number' ? `${prefix}[${key}]` : `${prefix}.${String(key)}`),
    at,
  );
}
