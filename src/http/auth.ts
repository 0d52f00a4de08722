// Bearer tokens: compared as SHA-256 digests in constant time, never kept or logged (05 §1.3).
import { createHash, timingSafeEqual } from 'node:crypto';

export interface TokenCheck {
  /** False = nobody needs a token. */
  readonly required: boolean;
  /** The token's SHA-256 in hex when it is one of ours, else null. */
  accept(token: string): string | null;
}

export function createTokenCheck(tokens: readonly string[]): TokenCheck {
  return checkOf(tokens.map(digest));
}

/** The same for tokens of which only the SHA-256, in hex, is known. */
export function createDigestCheck(digests: readonly string[]): TokenCheck {
  return checkOf(digests.map((hex) => Buffer.from(hex, 'hex')));
}

function checkOf(known: readonly Buffer[]): TokenCheck {
  return {
    required: known.length > 0,
    accept(token) {
      const given = digest(token);
      let match = false;
      // Every digest is compared, so that the time says nothing of which one was near.
      for (const one of known) match = timingSafeEqual(one, given) || match;
      return match ? given.toString('hex') : null;
    },
  };
}

function digest(token: string): Buffer {
  return createHash('sha256').update(token).digest();
}

/** The token of an `Authorization: Bearer` header; null when there is none or it has another form. */
export function bearerOf(header: string | undefined): string | null {
  return /^Bearer +(\S+) *$/i.exec(header ?? '')?.[1] ?? null;
}
