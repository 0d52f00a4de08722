// The routing file for all workspaces as it is found before a turn asks for it: what is wrong with it, reported in time (03 §6).
import fs from 'node:fs';
import type { ModelRegistry } from '../policy/registry/registry.ts';
import { parsePolicyFile } from '../policy/routing/policy-file.ts';
import { policyWarnings } from '../policy/routing/policy-warnings.ts';

/** Lines that name the file. With errors nothing of it is in force, with warnings a part is asked for in vain. Null = no file. */
export function checkRoutingFile(
  file: string,
  registry: ModelRegistry,
): { readonly errors: readonly string[]; readonly warnings: readonly string[] } | null {
  let text: string;
  try {
    text = fs.readFileSync(file, 'utf8');
  } catch (cause) {
    const { code } = cause as NodeJS.ErrnoException;
    return code === 'ENOENT' ? null : { errors: [`${file}: cannot be read: ${code}`], warnings: [] };
  }
  const located = (lines: readonly string[]) => lines.map((line) => `${file}: ${line}`);
  const parsed = parsePolicyFile(text, 'global', registry);
  return parsed.ok
    ? { errors: [], warnings: located(policyWarnings(parsed.value, 'global', registry)) }
    : { errors: located(parsed.error), warnings: [] };
}
