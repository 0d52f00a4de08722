// Tokens of the configuration and of the database at the start, and secrets of new ones (23 §2).
import { randomBytes } from 'node:crypto';
import type { Engine } from '#core/engine/create-engine.ts';
import { hashToken } from '#core/engine/manage-people.ts';
import { isLoopback } from '#http/access.ts';
import type { Config } from '#protocol/config.ts';
import { StartupError } from '#protocol/errors.ts';

const SECRET_BYTES = 32;

/** A secret of 256 bits. */
export function makeSecret(): string {
  return `metis_${randomBytes(SECRET_BYTES).toString('base64url')}`;
}

/**
 * Reads the tokens. Throws `StartupError` for a name in two places, for one token with two names, and for a bind beyond
 * loopback without a token; one that is revoked or expired locks the server, and so protects it.
 */
export async function requireTokens({ people, config }: Engine): Promise<void> {
  await people.refresh();
  const { host } = config.server;
  if (!isLoopback(host) && !people.isRequired())
    throw new StartupError('token_missing', [
      `server.host: "${host}" can be reached from other machines, and no token protects it; set server.auth_tokens or run metis token create NAME --role admin --data DIR first, or bind to 127.0.0.1`,
    ]);
  requireDistinctTokens(config);
  const names = new Map<string, string>();
  for (const { name, origin } of people.list()) {
    const other = names.get(name) ?? (Object.hasOwn(config.gateway.keys, name) ? 'gateway.keys' : null);
    if (other !== null)
      throw new StartupError('token_name_taken', [
        `token_name_taken: ${name} is a token of the database and of ${other}; rename it in the configuration`,
      ]);
    names.set(name, origin === 'file' ? 'server.tokens' : 'the database');
  }
}

/** Throws `StartupError` for a token that the configuration lists twice: it would have one of two names and roles. */
function requireDistinctTokens({ server, gateway }: Config): void {
  const listed = [
    ...server.auth_tokens.map((token, i) => [`server.auth_tokens[${i}]`, hashToken(token).toString('hex')] as const),
    ...Object.entries(server.tokens).map(
      ([name, { token_sha256 }]) => [`server.tokens.${name}`, token_sha256] as const,
    ),
    ...Object.entries(gateway.keys).map(([name, { token_sha256 }]) => [`gateway.keys.${name}`, token_sha256] as const),
  ];
  const places = new Map<string, string>();
  for (const [place, digest] of listed) {
    const other = places.get(digest);
    if (other !== undefined)
      throw new StartupError('token_repeated', [
        `token_repeated: ${other} and ${place} are the same token; make one anew`,
      ]);
    places.set(digest, place);
  }
}
