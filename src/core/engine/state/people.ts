// The tokens of this server: those of the operator's file and those made at run time, as this node knows them (23 §1, §2).
import { createHash, timingSafeEqual } from 'node:crypto';
import type { Store } from '#core/ports/store-reader.ts';
import type { Awaitable } from '#protocol/async/awaitable.ts';
import { type Clock, sleep } from '#protocol/clock.ts';
import type { Config } from '#protocol/config.ts';
import {
  makeFileTokenId,
  makeGatewayKeyId,
  NAMELESS_ADMIN,
  type Person,
  type TokenRecord,
} from '#protocol/people/person.ts';

/** A named token. Times are Unix milliseconds. */
export interface KnownToken
  extends Pick<TokenRecord, 'id' | 'name' | 'role' | 'daily_usd' | 'monthly_usd' | 'workspaces'> {
  readonly origin: 'file' | 'server';
  readonly expires_at: number | null;
  /** Null for a token of the file. */
  readonly created_at: number | null;
  readonly revoked_at: number | null;
}

/** A person with the SHA-256 (hex) of the token. */
export interface Caller {
  readonly person: Person;
  readonly digest: string;
}

export interface People {
  /** Whether a caller needs a token. Once a token was made at run time, always (23 §2). */
  isRequired(): boolean;
  /** Null for a token that is none of ours, revoked or expired. One of another node is looked up. */
  recognize(token: string): Promise<Caller | null>;
  /**
   * Whether a caller would be let in, as far as this node knows.
   * @param digest of the token; empty = of a caller without one, who is let in as long as no token is required
   */
  isAccepted(digest: string): boolean;
  /** By name or id; of a key of the gateway as well. */
  findId(nameOrId: string): string | null;
  find(nameOrId: string): KnownToken | null;
  list(): readonly KnownToken[];
  /** Reads the tokens that were made or revoked before this call. */
  refresh(): Promise<void>;
  /** On several nodes: reads them again where that was long ago. Elsewhere this process alone changes them. */
  keepCurrent(): Awaitable<void>;
}

/** Between look-ups of tokens that this node does not know: wrong ones must not cost a query each. */
const LOOK_AGAIN_MS = 250;
/** Below the 5 s within which every node refuses a token that another one revoked (23 §2). */
const CURRENT_MS = 2000;

interface Entry {
  readonly digest: Buffer;
  readonly token: KnownToken | null;
}

interface PeopleParts {
  readonly config: Config;
  readonly store: Pick<Store, 'people'>;
  readonly clock: Clock;
  /** Whether other nodes make and revoke tokens too. */
  readonly several: boolean;
}

export function createPeople({ config, store, clock, several }: PeopleParts): People {
  const { auth_tokens, tokens } = config.server;
  const ofFile: readonly Entry[] = [
    ...auth_tokens.map((token) => ({ digest: hashToken(token), token: null })),
    ...Object.entries(tokens).map(([name, { token_sha256, ...token }]) => ({
      digest: Buffer.from(token_sha256, 'hex'),
      token: {
        ...token,
        id: makeFileTokenId(name),
        name,
        origin: 'file' as const,
        expires_at: token.expires_at === null ? null : Date.parse(token.expires_at),
        created_at: null,
        revoked_at: null,
      },
    })),
  ];
  let made: readonly Entry[] = [];
  let reading: Promise<void> | null = null;
  let readAt = Number.NEGATIVE_INFINITY;

  const isUsable = ({ token }: Entry) =>
    token === null || (token.revoked_at === null && (token.expires_at === null || token.expires_at > clock.now()));
  const all = () => [...ofFile, ...made];
  const isRequired = () => ofFile.length + made.length > 0;

  /** A revoked or an expired one too. */
  function findToken(digest: Buffer): Entry | null {
    let found: Entry | null = null;
    // Every digest is compared, so that the time does not depend on which one matches.
    for (const entry of all()) if (timingSafeEqual(entry.digest, digest)) found = entry;
    return found;
  }

  async function readStoredTokens(): Promise<void> {
    const at = clock.monotonic();
    const rows = await store.people.tokens();
    made = rows.map(({ token_sha256, created_by: _, ...row }) => ({
      digest: Buffer.from(token_sha256, 'hex'),
      token: { ...row, origin: 'server' as const },
    }));
    readAt = at;
  }

  function readAgain(): Promise<void> {
    reading ??= readStoredTokens().finally(() => {
      reading = null;
    });
    return reading;
  }
  /** A read that is under way may have begun before what the caller knows of. */
  async function refreshTokens(): Promise<void> {
    await reading?.catch(() => {});
    await readAgain();
  }
  /** Another node may have made the token a moment ago: its request waits for a look-up rather than be refused. */
  async function lookAgain(): Promise<void> {
    const asked = clock.monotonic();
    await sleep(clock, Math.max(0, readAt + LOOK_AGAIN_MS - asked));
    if (readAt <= asked) await refreshTokens();
  }
  function keepCurrent(): Awaitable<void> {
    if (several && clock.monotonic() - readAt > CURRENT_MS) return readAgain();
  }
  const listNamed = () => all().flatMap(({ token }) => (token === null ? [] : [token]));
  const findNamed = (nameOrId: string) =>
    listNamed().find(({ id, name }) => id === nameOrId || name === nameOrId) ?? null;

  return {
    isRequired,
    async recognize(token) {
      await keepCurrent();
      const digest = hashToken(token);
      let found = findToken(digest);
      if (found === null && several) {
        await lookAgain();
        found = findToken(digest);
      }
      if (found === null || !isUsable(found)) return null;
      return { person: found.token === null ? NAMELESS_ADMIN : found.token, digest: digest.toString('hex') };
    },
    isAccepted(digest) {
      if (digest === '') return !isRequired();
      const found = findToken(Buffer.from(digest, 'hex'));
      return found !== null && isUsable(found);
    },
    find: findNamed,
    findId(nameOrId) {
      const known = findNamed(nameOrId);
      if (known !== null) return known.id;
      const isKey = Object.hasOwn(config.gateway.keys, nameOrId);
      if (isKey) return makeGatewayKeyId(nameOrId);
      return null;
    },
    list: listNamed,
    refresh: refreshTokens,
    keepCurrent,
  };
}

export function hashToken(token: string): Buffer {
  return createHash('sha256').update(token).digest();
}
