// A recorded HTTP attempt: its file format, and the key that matches a request to its recording (11.12).
import { z } from 'zod';
import { ErrorClassSchema } from '#protocol/scalars.ts';
import { canonicalJson, sha256Hex } from '#protocol/text/canonical-json.ts';
import { scrubSecrets, scrubValue } from '#protocol/text/scrub.ts';

export const RecordingSchema = z.strictObject({
  schema_version: z.literal(1),
  adapter: z.string(),
  method: z.string(),
  path: z.string(),
  body: z.unknown(),
  /** Null without a response. */
  status: z.int().nullable(),
  headers: z.record(z.string(), z.string()),
  chunks: z.array(z.strictObject({ at_ms: z.int().min(0), text: z.string() })),
  end: z.union([z.literal(['complete', 'aborted']), ErrorClassSchema]),
});
export type Recording = z.infer<typeof RecordingSchema>;

/** The response headers that adapters read; others are not recorded. */
export const KEPT_HEADERS = ['content-type', 'request-id', 'x-request-id', 'retry-after', 'retry-after-ms'];

const RUN_IDS = /(tu_|sess_)[0-7][0-9A-HJKMNP-TV-Z]{25}/g;
/** The price and the time behind a worker's id (20 §3). */
const CONTINUATION_PRICE = /; continuing costs about \$[\d.]+(?: until \d\d:\d\d, then \$[\d.]+)?(?=\])/g;

/** Equal for the same request of another run: ids count by their order of appearance only, and times not at all. */
export function bodyKey(body: unknown, secrets: readonly string[]): string {
  return sha256Hex(canonicalBody(body, secrets));
}

/** The JSON text that the key is made of. */
export function canonicalBody(body: unknown, secrets: readonly string[]): string {
  const ordinals = new Map<string, number>();
  const text = canonicalJson(scrubValue(body, secrets)).replace(RUN_IDS, (id: string, prefix: string) => {
    if (!ordinals.has(id)) ordinals.set(id, ordinals.size + 1);
    return `${prefix}${ordinals.get(id)}`;
  });
  return text.replace(CONTINUATION_PRICE, '');
}

/** Ids of tool calls and sessions, in the order in which the canonical text counts them. */
export function listRunIds(body: unknown): readonly string[] {
  return [...new Set(canonicalJson(body).match(RUN_IDS))];
}

/** An ended attempt without its request body; credentials are not removed yet. */
export interface Exchange extends Omit<Recording, 'schema_version' | 'method' | 'body'> {
  readonly secrets: readonly string[];
}

/** The text of a recording's file, without credentials. */
export function recordingText(body: Buffer, { secrets, chunks, end, ...exchange }: Exchange): string {
  const { adapter, path, status, headers } = exchange;
  const recording: Recording = {
    schema_version: 1,
    adapter,
    method: 'POST',
    path,
    body: scrubValue(JSON.parse(body.toString('utf8')), secrets),
    status,
    headers: scrubValue(headers, secrets),
    chunks: cleanChunks(chunks, secrets),
    end,
  };
  return JSON.stringify(recording, null, 1);
}

/** The received pieces. If they contain a credential, one joined piece without it, since it may span two pieces. */
function cleanChunks(chunks: Recording['chunks'], secrets: readonly string[]): Recording['chunks'] {
  const whole = chunks.map((chunk) => chunk.text).join('');
  const scrubbed = scrubSecrets(whole, secrets);
  if (scrubbed === whole) return chunks;
  return [{ at_ms: chunks[0]?.at_ms ?? 0, text: scrubbed }];
}
