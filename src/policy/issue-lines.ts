// Faults that zod found, as lines a person can act on: `<key path>: <problem>`.
import type { z } from 'zod';

/**
 * One line per fault.
 * @param at key path of the value that was checked
 */
export function issueLines(error: z.ZodError, at: string): string[] {
  return error.issues.flatMap((issue) => {
    const path = issue.path.reduce<string>(
      (prefix, key) => (typeof key === 'number' ? `${prefix}[${key}]` : `${prefix}.${String(key)}`),
      at,
    );
    if (issue.code === 'unrecognized_keys') return issue.keys.map((key) => `${path}.${key}: unknown key`);
    const missing = issue.message.endsWith('received undefined');
    return [`${path}: ${missing ? 'is required' : issue.message.replace(/^Invalid (input|option): /, '')}`];
  });
}
