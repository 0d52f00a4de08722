// Suggests the known key that an unknown one was probably meant to be.
import { z } from 'zod';

/** Longer keys are not compared. */
const MAX_LENGTH = 40;

/** The keys that objects at this place may have, by the schema of the whole value. */
export function listKnownKeys(schema: z.ZodType, path: readonly PropertyKey[]): readonly string[] {
  let at: readonly z.ZodType[] = [schema];
  for (const step of path) at = at.flatMap((one) => listChildren(one, step));
  return [...new Set(at.flatMap(listObjects).flatMap((object) => Object.keys(object.shape)))];
}

/** The most similar key, if it is similar enough; else null. */
export function findNearestKey(key: string, known: readonly string[]): string | null {
  if (key.length < 3 || key.length > MAX_LENGTH) return null;
  let best: string | null = null;
  let least = Math.max(1, Math.floor(key.length / 3)) + 1;
  for (const candidate of known) {
    const away = candidate.startsWith(`${key}_`) ? 1 : computeDistance(key.toLowerCase(), candidate.toLowerCase());
    if (away < least) [best, least] = [candidate, away];
  }
  return best;
}

/** The forms a value may take: what wraps an object is taken off. */
function listForms(schema: z.ZodType): z.ZodType[] {
  if (schema instanceof z.ZodUnion) return schema.options.flatMap((option) => listForms(option as z.ZodType));
  if (schema instanceof z.ZodPipe) return listForms(schema.in as z.ZodType);
  const wraps = schema instanceof z.ZodOptional || schema instanceof z.ZodNullable || schema instanceof z.ZodDefault;
  if (wraps) return listForms(schema.unwrap() as z.ZodType);
  return [schema];
}

function listObjects(schema: z.ZodType): z.ZodObject[] {
  return listForms(schema).filter((form) => form instanceof z.ZodObject);
}

function listChildren(schema: z.ZodType, step: PropertyKey): z.ZodType[] {
  return listForms(schema).flatMap((form) => {
    if (form instanceof z.ZodArray) return [form.element as z.ZodType];
    const child = form instanceof z.ZodObject && Object.hasOwn(form.shape, step) ? form.shape[String(step)] : undefined;
    if (child === undefined) return [];
    return [child as z.ZodType];
  });
}

/** Edit distance: characters to change, add or remove. */
function computeDistance(a: string, b: string): number {
  let row = Array.from({ length: b.length + 1 }, (_, i) => i);
  for (let i = 1; i <= a.length; i++) {
    const next = [i];
    for (let j = 1; j <= b.length; j++) {
      const change = row[j - 1]! + (a[i - 1] === b[j - 1] ? 0 : 1);
      next.push(Math.min(change, row[j]! + 1, next[j - 1]! + 1));
    }
    row = next;
  }
  return row[b.length]!;
}
