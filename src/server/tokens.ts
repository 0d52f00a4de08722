// Tokens of the configuration and of the database at the start, and secrets of new ones (23 §2).
import { randomBytes } from 'node:crypto';
import type { Engine } from '#core/engine/create-engine.ts';
import { isLoopback } from '#http/access.ts';
import { StartupError } from '#protocol/errors.ts';

const SECRET_BYTES = 32;

/** A secret of 256 bits. */
export function makeSecret(): string {
  return `metis_${randomBytes(SECRET_BYTES).toString('base64url')}`;
}

/**
 * Reads the tokens. Throws `StartupError` for a name in two places, and for a bind beyond loopback without a token; one
 * that is revoked or expired locks the server, and so protects it.
 */
export async function requireTokens({ people, config }: Engine): Promise<void> {
  await people.refresh();
  const { host } = config.server;
  if (!isLoopback(host) && !people.isRequired())
    throw new StartupError('token_missing', [
      `server.host: "${host}" can be reached from other machines, and no token protects it; set server.auth_tokens or run metis token create NAME --role admin --data DIR first, or bind to 127.0.0.1`,
    ]);
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
