// A price table file: parsed with one line per problem, and written in a form that never changes by itself (08 §2, §10).
import { z } from 'zod';
import { MODEL_ID_PATTERN } from '#protocol/model.ts';
import { err, ok, type Result } from '#protocol/result.ts';
import { OWN_FILE } from '../parsing/limits.ts';
import { plainIssues } from '../parsing/plain-issue.ts';
import { readYaml } from '../parsing/yaml.ts';
import { type RawEntry, RawEntrySchema, type RawTable } from './price-entry.ts';

const FileSchema = z.strictObject({
  pricing_version: z
    .string({ error: 'is required and must be a string' })
    .regex(/^[A-Za-z0-9._-]{1,64}$/, 'must be 1 to 64 of A-Z a-z 0-9 . _ -'),
  currency: z.literal('USD', { error: 'must be USD; enter other currencies at a USD rate of your own' }).default('USD'),
  source: z.string().default(''),
  imported_on: z
    .string()
    .regex(/^\d{4}-\d\d-\d\d$/, 'must be a date YYYY-MM-DD')
    .nullable()
    .default(null),
  models: z.record(z.string().regex(MODEL_ID_PATTERN, 'must be a model id <provider>:<name>'), RawEntrySchema, {
    error: 'is required and must be a map of model ids',
  }),
});

/**
 * Reads a table from JSON or YAML, all or nothing.
 * @param path only named in the problems, each of which is `<path>: <model>: <field>: <reason>`
 */
export function parsePriceTable(text: string, path: string): Result<RawTable, string[]> {
  const yaml = readYaml(text, OWN_FILE);
  if (!yaml.ok) return err([`${path}: ${yaml.error}`]);
  const parsed = FileSchema.safeParse(yaml.value);
  if (parsed.success) return ok(parsed.data);
  return err(plainIssues(parsed.error).map((issue) => `${path}: ${place(issue.path)}${issue.message}`));
}

/** The file's text: models sorted by id, fields in their documented order, defaults left out. */
export function formatPriceTable(table: RawTable): string {
  const models: Record<string, RawEntry> = {};
  for (const id of Object.keys(table.models).sort()) models[id] = table.models[id]!;
  const { pricing_version, currency, source, imported_on } = table;
  return `${JSON.stringify({ pricing_version, currency, source, imported_on, models }, null, 2)}\n`;
}

// `models`, id, field, ... -> `id: field: `; other fields by their dotted path.
function place(path: readonly PropertyKey[]): string {
  const [first, model, ...field] = path.map(String);
  const names = first === 'models' && model !== undefined ? [model, field.join('.')] : [path.map(String).join('.')];
  return names.map((name) => (name === '' ? '' : `${name}: `)).join('');
}
