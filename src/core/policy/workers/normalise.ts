// The spellings in which a definition may be written, brought into the one in which it is kept (13 §2).
import { isMapping } from '../parsing/yaml.ts';
import type { Fault } from './fault.ts';

/** Tools of the old toolset that are no workers. */
const DELEGATION_TOOLS: readonly string[] = ['worker_create', 'worker_call'];
/** The tool that loads skills, as definitions of Claude Code name it. */
const SKILL_TOOL = 'Skill';

type Mapping = Readonly<Record<string, unknown>>;

/** The mapping with `tool_rules` as a map, `toolsets` spread over two lists, `Skill` as `skill_load`, sandboxes in today's words; what is wrong goes into `faults`. */
export function normalised(given: Mapping, faults: Fault[]): Mapping {
  const { toolsets, ...rest } = given;
  let value: Record<string, unknown> = { ...rest };
  if (toolsets !== undefined) value = withToolsets(value, toolsets, faults);
  if (Array.isArray(value.tools)) value.tools = value.tools.map((tool) => (tool === SKILL_TOOL ? 'skill_load' : tool));
  if (Array.isArray(value.tool_rules)) value.tool_rules = rulesByName(value.tool_rules, faults);
  else if (isMapping(value.tool_rules)) value.tool_rules = namedEntries(value.tool_rules, 'tool_rules', faults);
  if (isMapping(value.sandboxes)) {
    const sandboxes = namedEntries(value.sandboxes, 'sandboxes', faults);
    value.sandboxes = mapped(sandboxes, (entry, name) => (isMapping(entry) ? sandbox(entry, name, faults) : entry));
  }
  return value;
}

/** Each entry with its key as `name`; one that names itself otherwise is a fault. */
function namedEntries(map: Mapping, field: string, faults: Fault[]): Mapping {
  return mapped(map, (entry, key) => {
    // A map does not show it to whoever looks through its keys.
    if (key === '__proto__') faults.push({ path: [field, key], message: 'is not a name' });
    if (!isMapping(entry)) return entry ?? { name: key };
    if (entry.name !== undefined && entry.name !== key)
      faults.push({ path: [field, key, 'name'], message: `must equal its key "${key}"` });
    return { ...entry, name: key };
  });
}

function sandbox(entry: Mapping, name: string, faults: Fault[]): Mapping {
  const { suffixes, ...rest } = entry;
  const value: Record<string, unknown> = { ...rest };
  if (suffixes !== undefined) {
    if (value.allowed_suffixes === undefined) value.allowed_suffixes = suffixes;
    else faults.push({ path: ['sandboxes', name, 'suffixes'], message: 'is the same as allowed_suffixes; keep one' });
  }
  if (typeof value.mode === 'string') value.mode = value.mode.toLowerCase();
  return value;
}

function rulesByName(list: readonly unknown[], faults: Fault[]): Mapping {
  const rules = new Map<string, unknown>();
  for (const [index, rule] of list.entries()) {
    const name = isMapping(rule) ? rule.name : undefined;
    if (typeof name !== 'string') faults.push({ path: ['tool_rules', index, 'name'], message: 'is required' });
    else if (rules.has(name)) faults.push({ path: ['tool_rules', index, 'name'], message: `"${name}" stands twice` });
    else rules.set(name, rule);
  }
  return Object.fromEntries(rules);
}

function withToolsets(value: Record<string, unknown>, toolsets: unknown, faults: Fault[]): Record<string, unknown> {
  if (!isMapping(toolsets)) {
    faults.push({ path: ['toolsets'], message: 'must be a mapping' });
    return value;
  }
  for (const name of Object.keys(toolsets))
    if (name !== 'delegation') faults.push({ path: ['toolsets', name], message: `unknown toolset "${name}"` });
  const { delegation } = toolsets;
  if (delegation === undefined) return value;
  if (!isMapping(delegation)) {
    faults.push({ path: ['toolsets', 'delegation'], message: 'must be a mapping of workers' });
    return value;
  }
  const names = Object.keys(delegation);
  const isTool = (name: string) => DELEGATION_TOOLS.includes(name);
  return {
    ...value,
    allow_workers: joined(
      value.allow_workers,
      names.filter((name) => !isTool(name)),
    ),
    tools: joined(value.tools, names.filter(isTool)),
  };
}

/** A list that is none stays as it is, for the schema to say so. */
function joined(list: unknown, more: readonly string[]): unknown {
  if (list !== undefined && !Array.isArray(list)) return list;
  return [...new Set([...(list ?? []), ...more])];
}

function mapped(map: Mapping, fn: (entry: unknown, key: string) => unknown): Mapping {
  return Object.fromEntries(Object.entries(map).map(([key, entry]) => [key, fn(entry, key)]));
}
