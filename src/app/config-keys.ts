// The flat list of configuration keys, read off the schema: key -> its own schema, environment name, text form (15 §1).
import { z } from 'zod';
import { ConfigSchema } from '../domain/config.ts';

/** Every key in schema order, e.g. `server.port`, with the schema of its value. */
export const CONFIG_KEYS: ReadonlyMap<string, z.ZodType> = leaves(ConfigSchema, '');

/** The prefixes that hold keys and are none themselves: `server`, `tools.shell`, ... */
export const CONFIG_SECTIONS: ReadonlySet<string> = new Set(
  [...CONFIG_KEYS.keys()].flatMap((key) => {
    const parts = key.split('.');
    return parts.slice(1).map((_, i) => parts.slice(0, i + 1).join('.'));
  }),
);

function leaves(schema: z.ZodObject, prefix: string): Map<string, z.ZodType> {
  const found = new Map<string, z.ZodType>();
  for (const [name, child] of Object.entries(schema.shape)) {
    if (child instanceof z.ZodObject) for (const [k, v] of leaves(child, `${prefix}${name}.`)) found.set(k, v);
    else found.set(`${prefix}${name}`, child as z.ZodType);
  }
  return found;
}

/** `delegation.max_depth` -> `METIS_DELEGATION_MAX_DEPTH`. */
export function environmentName(key: string): string {
  return `METIS_${key.toUpperCase().replaceAll('.', '_')}`;
}

/**
 * Reads a value from the environment or the command line: scalars as text, lists and maps as JSON, `null` as null.
 * What does not parse is returned as the text it is, for the schema to refuse.
 */
export function valueFromText(schema: z.ZodType, text: string): unknown {
  if (schema instanceof z.ZodNullable) {
    return text === 'null' || text === '' ? null : valueFromText(schema.unwrap() as z.ZodType, text);
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
