// The flat list of configuration keys, read off the schema: key -> its own schema, environment name, text form (15 §1).
import { z } from 'zod';
import { nearestKey } from '#core/policy/parsing/known-keys.ts';
import { ConfigSchema } from '#protocol/config.ts';

/** Every key in schema order, e.g. `server.port`, with the schema of its value. */
export const CONFIG_KEYS: ReadonlyMap<string, z.ZodType> = collectKeys(ConfigSchema, '');

/** The prefixes that hold keys and are none themselves: `server`, `tools.shell`, ... */
export const CONFIG_SECTIONS: ReadonlySet<string> = new Set(
  [...CONFIG_KEYS.keys()].flatMap((key) => {
    const parts = key.split('.');
    return parts.slice(1).map((_, i) => parts.slice(0, i + 1).join('.'));
  }),
);

function collectKeys(schema: z.ZodObject, prefix: string): Map<string, z.ZodType> {
  const found = new Map<string, z.ZodType>();
  for (const [name, child] of Object.entries(schema.shape)) {
    if (child instanceof z.ZodObject) for (const [k, v] of collectKeys(child, `${prefix}${name}.`)) found.set(k, v);
    else found.set(`${prefix}${name}`, child as z.ZodType);
  }
  return found;
}

/**
 * What a key that is none was probably meant to be, as the end of a sentence; '' when nothing is near. Either a name is
 * misspelt, or what stands before it is missing: `server.prt`, `port`.
 */
export function suggestKey(key: string): string {
  const names = key.split('.');
  const known = [...CONFIG_KEYS.keys(), ...CONFIG_SECTIONS];
  const right = names.findIndex((_, i) => !known.includes(names.slice(0, i + 1).join('.')));
  const prefix = names
    .slice(0, right)
    .map((name) => `${name}.`)
    .join('');
  const siblings = known.filter((one) => one.startsWith(prefix)).map((one) => one.slice(prefix.length).split('.')[0]!);
  const near = right < 0 ? null : nearestKey(names[right]!, siblings);
  if (near !== null) {
    const rest = names
      .slice(right + 1)
      .map((name) => `.${name}`)
      .join('');
    return formatSuggestion(known.includes(`${prefix}${near}${rest}`) ? `${prefix}${near}${rest}` : `${prefix}${near}`);
  }
  const ends = known.filter((one) => one.endsWith(`.${key}`));
  return formatSuggestion(ends.length === 1 ? ends[0]! : null);
}

/** The same of a variable's name. */
export function suggestVariable(name: string): string {
  const cut = 'METIS_'.length;
  const names = [...CONFIG_KEYS.keys()].map((key) => toEnvironmentName(key).slice(cut));
  const near = nearestKey(name.slice(cut), names);
  return formatSuggestion(near === null ? null : `METIS_${near}`);
}

function formatSuggestion(meant: string | null): string {
  return meant === null ? '' : `; did you mean "${meant}"?`;
}

/** `delegation.max_depth` -> `METIS_DELEGATION_MAX_DEPTH`. */
export function toEnvironmentName(key: string): string {
  return `METIS_${key.toUpperCase().replaceAll('.', '_')}`;
}

/**
 * Reads a value from the environment or the command line: scalars as text, lists and maps as JSON, `null` as null.
 * What does not parse is returned as the text it is, for the schema to refuse.
 */
export function parseValue(schema: z.ZodType, text: string): unknown {
  if (schema instanceof z.ZodNullable) {
    return text === 'null' || text === '' ? null : parseValue(schema.unwrap() as z.ZodType, text);
  }
  if (schema instanceof z.ZodNumber) return /^-?\d+(\.\d+)?$/.test(text) ? Number(text) : text;
  if (schema instanceof z.ZodBoolean) return text === 'true' ? true : text === 'false' ? false : text;
  if (schema instanceof z.ZodArray || schema instanceof z.ZodRecord) {
    try {
      return JSON.parse(text);
    } catch {
      return text;
    }
  }
  return text;
}

/** How a list or a map is written as text, for somebody whose text was none; '' for every other schema. */
export function describeTextForm(schema: z.ZodType): string {
  if (schema instanceof z.ZodNullable) return describeTextForm(schema.unwrap() as z.ZodType);
  if (schema instanceof z.ZodArray) return `; a list is written as JSON, like '["one", "two"]'`;
  return schema instanceof z.ZodRecord ? `; a map is written as JSON, like '{"name": "value"}'` : '';
}
