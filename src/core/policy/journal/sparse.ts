// Objects as they are stored: without the values that a reader takes a missing field for (01 §1).
import { z } from 'zod';

type Values = Readonly<Record<string, unknown>>;

/** Every field of a schema in its order, with what a missing one stands for; undefined where it must be there. */
export type Defaults = Values;

/** Null for what may be null, else `false`, `0` and the empty list. */
export function defaultsOf(schema: z.ZodObject): Defaults {
  return Object.fromEntries(Object.entries(schema.shape).map(([name, field]) => [name, defaultOf(field)]));
}

function defaultOf(field: unknown): unknown {
  if (field instanceof z.ZodNullable) return null;
  if (field instanceof z.ZodBoolean) return false;
  if (field instanceof z.ZodNumber) return 0;
  return field instanceof z.ZodArray ? EMPTY : undefined;
}
const EMPTY: readonly unknown[] = Object.freeze([]);

/** What has to be stored of an object. */
export function sparse(defaults: Defaults, object: Values): Record<string, unknown> {
  const kept: Record<string, unknown> = {};
  for (const name in object) {
    const value = object[name];
    const missing = defaults[name];
    if (value !== missing && !(missing === EMPTY && (value as readonly unknown[]).length === 0)) kept[name] = value;
  }
  return kept;
}

/** The object again, its fields in the order of the schema; one that was stored whole stays as it is. */
export function whole(defaults: Defaults, stored: Values): Record<string, unknown> {
  return { ...defaults, ...stored };
}
