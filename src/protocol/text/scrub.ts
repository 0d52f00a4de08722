// The one scrub function: no secret, address or foreign path leaves in an error text or a log (01 §10.3).

export const REDACTED = '[REDACTED]';
const MAX_LENGTH = 2000;
/** How much of a text is looked at: what a stranger sent may be megabytes, and is read while nothing else runs. */
const MAX_SOURCE = 16_384;
/** What is left away in front of a cut, as a secret that the cut halved would not be known any more. */
const CUT_EDGE = 4096;

/** Each reads a text a fixed number of times, however it is made: none may begin anew at every character of a run. */
const PATTERNS: readonly RegExp[] = [
  /\b(?:Bearer|Basic)\s+[A-Za-z0-9._~+/=-]{6,}/gi,
  /\b(?:x-api-key|authorization)["']?\s*[:=]\s*["']?(?!\[REDACTED\])[^\s"',;}]+/gi,
  /-----BEGIN [A-Z ]+-----[\s\S]*?(?:-----END [A-Z ]+-----|$)/g,
  /\bsk-[A-Za-z0-9_-]{8,}/g,
  /\bgh[pousr]_[A-Za-z0-9]{16,}/g,
  /\bgithub_pat_[A-Za-z0-9_]{16,}/g,
  /\bAKIA[A-Z0-9]{12,}/g,
  /\bxox[a-z]-[A-Za-z0-9-]{8,}/g,
  // Looks ahead for the dots once a run: tried at each `eyJ` of a run without them it would be quadratic.
  /(?<![\w-])(?=[\w-]*\.[\w-]{8,}\.)[\w-]*?\beyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]*/g,
];
const EMAIL = /[A-Za-z0-9._%+-]{1,64}@[A-Za-z0-9-]{1,63}(?:\.[A-Za-z0-9-]{1,63})+/g;
// A path starts at a word boundary and has two segments at least, so that "/v1" or "and/or" survive.
const ABSOLUTE_PATH = /(?<![\w.:/~-])\/(?:[\w.@+-]+\/)+[\w.@+-]+/g;

export interface ScrubOptions {
  /** Exact values to remove, whatever their shape. */
  readonly secrets?: readonly string[];
  /** Absolute paths below this one are kept. */
  readonly workspace?: string | null;
}

/** Idempotent; the result has at most 2 000 characters, out of the first 16 384 of the text. */
export function scrub(text: string, options: ScrubOptions = {}): string {
  let out = scrubSecrets(text.slice(0, MAX_SOURCE), options.secrets ?? []);
  out = out.replace(EMAIL, REDACTED);
  const workspace = options.workspace ?? null;
  out = out.replace(ABSOLUTE_PATH, (path) =>
    workspace !== null && (path === workspace || path.startsWith(`${workspace}/`)) ? path : REDACTED,
  );
  const whole = text.length > MAX_SOURCE ? Math.max(0, out.length - CUT_EDGE) : out.length;
  return out.slice(0, Math.min(whole, MAX_LENGTH));
}

/** Credentials only, at any length: for text that must stay usable otherwise, such as a recorded exchange (11.12). */
export function scrubSecrets(text: string, secrets: readonly string[]): string {
  let out = text;
  for (const pattern of PATTERNS) out = out.replace(pattern, REDACTED);
  for (const secret of secrets) if (secret.length > 0) out = out.replaceAll(secret, REDACTED);
  return out;
}

/** The same, cut to `limit` characters behind the scrubbing, and then ending in `...`: no half of a secret stays. */
export function scrubExcerpt(text: string, limit: number, secrets: readonly string[]): string {
  const source = text.slice(0, limit + 2 * CUT_EDGE);
  const clean = scrubSecrets(source, secrets);
  if (source.length === text.length && clean.length <= limit) return clean;
  // A secret that the end of the source halved lies behind the last one that was taken out.
  const last = clean.lastIndexOf(REDACTED);
  const known = last < 0 ? 0 : last + REDACTED.length;
  const end = source.length === text.length ? clean.length : Math.max(clean.length - CUT_EDGE, known);
  return `${clean.slice(0, Math.min(end, limit - 3)).replace(/[\uD800-\uDBFF]$/, '')}...`;
}

/** The same value with the credentials taken out of every string, the keys of its objects included. */
export function scrubValue<T>(value: T, secrets: readonly string[]): T;
export function scrubValue(value: unknown, secrets: readonly string[]): unknown {
  if (typeof value === 'string') return scrubSecrets(value, secrets);
  if (Array.isArray(value)) return value.map((item) => scrubValue(item, secrets));
  if (typeof value !== 'object' || value === null) return value;
  return Object.fromEntries(
    Object.entries(value).map(([key, item]) => [scrubSecrets(key, secrets), scrubValue(item, secrets)]),
  );
}
