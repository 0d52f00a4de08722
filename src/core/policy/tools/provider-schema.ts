// A tool's input schema in the one form that every provider accepts (09 §11.3).

import type { Issue } from '#protocol/errors.ts';
import { ok, type Result } from '#protocol/result.ts';
import { sha256Hex } from '#protocol/text/canonical-json.ts';
import type { JsonSchema } from '#protocol/tool.ts';
import { isMapping, toMapping } from '../parsing/yaml.ts';
import { flattenSchema } from './flat-schema.ts';

/** Anthropic refuses other names of properties at the root; names below it may be any. */
const PROPERTY_NAME = /^[a-zA-Z0-9_.-]{1,64}$/;
const MAX_NAME = 64;
const HEAD = 55;
/** Root keywords that refer to properties by name. Calls are still checked against them. */
const BY_NAME: readonly string[] = [
  'dependencies',
  'dependentRequired',
  'dependentSchemas',
  'else',
  'if',
  'patternProperties',
  'propertyNames',
  'then',
];

export interface ProviderSchema {
  readonly schema: JsonSchema;
  /** The tool's own name of a property by the name that the model sees, where they differ. */
  readonly names: ReadonlyMap<string, string>;
}

/**
 * One form for all wires: a session may change its model between two calls, and one wire leads to many vendors.
 * @param schema of 2020-12; it need not be valid
 */
export function toProviderSchema(schema: JsonSchema): Result<ProviderSchema, string> {
  const flat = flattenSchema(schema);
  if (!flat.ok) return flat;
  const properties = toMapping(flat.value.properties);
  const shown = listShownNames(Object.keys(properties));
  if (shown.size === 0) return ok({ schema: flat.value, names: new Map() });
  // An object that is closed except for a pattern would reject names that match the pattern.
  const dropped = 'patternProperties' in flat.value ? [...BY_NAME, 'additionalProperties'] : BY_NAME;
  const rest = Object.fromEntries(Object.entries(flat.value).filter(([key]) => !dropped.includes(key)));
  const named = Object.entries(properties).map(([name, property]) => {
    const other = shown.get(name);
    if (other === undefined) return [name, property];
    if (!isMapping(property)) return [other, property];
    return [other, { title: name, ...property }];
  });
  const renamed: Record<string, unknown> = { ...rest, properties: Object.fromEntries(named) };
  if (Array.isArray(rest.required)) renamed.required = rest.required.map((name) => shown.get(name) ?? name);
  return ok({ schema: renamed, names: new Map([...shown].map(([name, other]) => [other, name])) });
}

/** Replacement names for properties that a provider rejects. */
function listShownNames(names: readonly string[]): ReadonlyMap<string, string> {
  const taken = new Set(names.filter((name) => PROPERTY_NAME.test(name)));
  const shown = new Map<string, string>();
  for (const name of names.filter((name) => !taken.has(name)).sort()) {
    const plain = name.replaceAll(/[^a-zA-Z0-9_.-]+/g, '_');
    let other = plain;
    if (plain === '' || plain.length > MAX_NAME || taken.has(plain))
      other = `${plain.slice(0, HEAD)}_${sha256Hex(name).slice(0, 8)}`;
    taken.add(other);
    shown.set(name, other);
  }
  return shown;
}

/** The input under the tool's own names. */
export function toOwnInput(
  input: Readonly<Record<string, unknown>>,
  names: ProviderSchema['names'],
): Readonly<Record<string, unknown>> {
  if (names.size === 0) return input;
  return Object.fromEntries(Object.entries(input).map(([name, value]) => [names.get(name) ?? name, value]));
}

/** Issues of an input under the names that the model gave. */
export function toShownIssues(issues: readonly Issue[], names: ProviderSchema['names']): readonly Issue[] {
  if (names.size === 0) return issues;
  return issues.map(({ path, message }) => {
    const found = [...names].find(
      ([, own]) => path === own || path.startsWith(`${own}.`) || path.startsWith(`${own}[`),
    );
    if (found === undefined) return { path, message };
    const [name, own] = found;
    return { path: `${name}${path.slice(own.length)}`, message };
  });
}
