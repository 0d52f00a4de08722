// Routing rules of one policy file: name, condition, model (03 §6.2, §6.3).
import { isMapping } from '../parsing/yaml.ts';
import { compilePredicate, fileScope, type Predicate } from './predicates.ts';

export interface Rule {
  readonly name: string;
  /** The condition as written. */
  readonly when: unknown;
  /** Canonical model id. */
  readonly use: string;
  readonly matches: Predicate;
}

const RULE_KEYS = new Set(['name', 'when', 'use']);

/**
 * Compiles the list in order; names are unique in it, a rule without one is called `rule_<index>`.
 * Faults are appended to `errors` as `<path>: <problem>`.
 * @param modelRef gives the canonical id of a model reference, or appends its fault and gives null
 */
export function compileRules(
  value: unknown,
  at: string,
  errors: string[],
  modelRef: (value: unknown, at: string) => string | null,
): Rule[] {
  if (!Array.isArray(value)) {
    errors.push(`${at}: must be a list`);
    return [];
  }
  const names = new Set<string>();
  const scope = fileScope();
  return value.flatMap((entry: unknown, i): Rule[] => {
    const path = `${at}[${i}]`;
    if (!isMapping(entry)) {
      errors.push(`${path}: must be a mapping with the keys when and use`);
      return [];
    }
    const unknown = Object.keys(entry).filter((key) => !RULE_KEYS.has(key));
    if (unknown.length > 0) errors.push(`${path}: unknown key(s) [${unknown.join(', ')}]`);

    const name = entry.name ?? `rule_${i}`;
    if (typeof name !== 'string' || name === '') errors.push(`${path}.name: must be a non-empty string`);
    else if (names.has(name)) errors.push(`${path}.name: duplicate name`);
    else names.add(name);

    if (entry.when == null) errors.push(`${path}.when: is required`);
    const matches = entry.when == null ? () => false : compilePredicate(entry.when, `${path}.when`, errors, scope);
    if (entry.use == null) errors.push(`${path}.use: is required`);
    const use = entry.use == null ? null : modelRef(entry.use, `${path}.use`);
    return use === null ? [] : [{ name: String(name), when: entry.when, use, matches }];
  });
}
