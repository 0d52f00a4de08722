// A recorded HTTP attempt as a file, and how a request finds the one that answers it (11.12).
import { z } from 'zod';
import { ErrorClassSchema } from '../domain/scalars.ts';
import { canonicalJson, sha256Hex } from '../kernel/canonical-json.ts';
import { scrubSecrets } from '../kernel/scrub.ts';

export const RecordingSchema = z.strictObject({
  schema_version: z.literal(1),
  adapter: z.string(),
  method: z.string(),
  path: z.string(),
  body: z.unknown(),
  /** Null when no response came. */
  status: z.int().nullable(),
  headers: z.record(z.string(), z.string()),
  chunks: z.array(z.strictObject({ at_ms: z.int().min(0), text: z.string() })),
  end: z.union([z.literal(['complete', 'aborted']), ErrorClassSchema]),
});
export type Recording = z.infer<typeof RecordingSchema>;

/** The response headers that mean something to an adapter; no other is kept. */
export const KEPT_HEADERS = ['content-type', 'request-id', 'x-request-id', 'retry-after', 'retry-after-ms'];

/** The same value with credentials taken out of every string. */
export function withoutSecrets(value: unknown, secrets: readonly string[]): unknown {
  if (typeof value === 'string') return scrubSecrets(value, secrets);
  if (Array.isArray(value)) return value.map((v) => withoutSecrets(v, secrets));
  if (typeof value !== 'object' || value === null) return value;
  return Object.fromEntries(Object.entries(value).map(([k, v]) => [k, withoutSecrets(v, secrets)]));
}

/** Equal for the same request of another run: tool use ids count by their order of appearance only. */
export function bodyKey(body: unknown, secrets: readonly string[]): string {
  const ordinals = new Map<string, number>();
  const text = canonicalJson(withoutSecrets(body, secrets)).replace(/tu_[0-7][0-9A-HJKMNP-TV-Z]{25}/g, (id) => {
    if (!ordinals.has(id)) ordinals.set(id, ordinals.size + 1);
    return `tu_${ordinals.get(id)}`;
  });
  return sha256Hex(text);
}
