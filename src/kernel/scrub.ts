// The one scrub function: no secret, address or foreign path leaves in an error text or a log (01 §10.3).

export const REDACTED = '[REDACTED]';
const MAX_LENGTH = 2000;

const PATTERNS: readonly RegExp[] = [
  /\b(?:Bearer|Basic)\s+[A-Za-z0-9._~+/=-]{6,}/gi,
  /\b(?:x-api-key|authorization)["']?\s*[:=]\s*["']?(?!\[REDACTED\])[^\s"',;}]+/gi,
  /-----BEGIN [A-Z ]+-----[\s\S]*?(?:-----END [A-Z ]+-----|$)/g,
  /\bsk-[A-Za-z0-9_-]{8,}/g,
  /\bgh[pousr]_[A-Za-z0-9]{16,}/g,
  /\bgithub_pat_[A-Za-z0-9_]{16,}/g,
  /\bAKIA[A-Z0-9]{12,}/g,
  /\bxox[a-z]-[A-Za-z0-9-]{8,}/g,
  /\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]*/g,
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

/** Idempotent; the result has at most 2 000 characters. */
export function scrub(text: string, options: ScrubOptions = {}): string {
  let out = scrubSecrets(text, options.secrets ?? []);
  out = out.replace(EMAIL, REDACTED);
  const workspace = options.workspace ?? null;
  out = out.replace(ABSOLUTE_PATH, (path) =>
    workspace !== null && (path === workspace || path.startsWith(`${workspace}/`)) ? path : REDACTED,
  );
  return out.length > MAX_LENGTH ? out.slice(0, MAX_LENGTH) : out;
}

/** Credentials only, at any length: for text that must stay usable otherwise, such as a recorded exchange (11.12). */
export function scrubSecrets(text: string, secrets: readonly string[]): string {
  let out = text;
  for (const pattern of PATTERNS) out = out.replace(pattern, REDACTED);
  for (const secret of secrets) if (secret.length > 0) out = out.replaceAll(secret, REDACTED);
  return out;
}
