// Several nodes on one PostgreSQL: where it is, how this node is called and reached (16 §11).
import { z } from 'zod';

const MIN_LEASE_SECONDS = 3;
const MAX_LEASE_SECONDS = 120;

function urlOf(protocols: readonly string[], example: string) {
  return z
    .string()
    .refine((text) => !isTorn(text), {
      message: 'must have "/", "#" and "?" of its password written as %2F, %23 and %3F',
      abort: true,
    })
    .refine(
      (text) => URL.canParse(text) && protocols.includes(new URL(text).protocol),
      `must be a URL like ${example}`,
    );
}

/** A password with one of these ends the address before its `@`: part of it would be taken for a host, a port, a path. */
function isTorn(text: string): boolean {
  const parts = /^[a-z]+:\/\/([^/?#]*)(.*)$/is.exec(text);
  return parts !== null && !parts[1]!.includes('@') && /^[^?]*@|\?[^=]*@/.test(parts[2]!);
}

export const DatabaseSchema = z.strictObject({
  /** Null = SQLite, one process; else the switch to cluster mode. */
  url: urlOf(['postgres:', 'postgresql:'], 'postgres://user:password@host:5432/database').nullable(),
  pool_size: z.int().min(2).max(1000),
  synchronous_commit: z.enum(['on', 'off']),
  start_timeout_seconds: z.number().min(0).max(86_400).nullable(),
});

export const NatsSchema = z.strictObject({
  url: urlOf(['nats:', 'tls:'], 'nats://host:4222').nullable(),
});

export const ClusterSchema = z.strictObject({
  /** A token of a NATS subject. */
  name: z.string().regex(/^[A-Za-z0-9_-]{1,64}$/, 'must be 1 to 64 letters, digits, "_" or "-"'),
  /** Null = host name and port. */
  node_name: z.string().min(1).max(200).nullable(),
  /** Null = from the bound address. */
  advertise_url: urlOf(['http:', 'https:'], 'http://host:8420').nullable(),
  lease_seconds: z.int().min(MIN_LEASE_SECONDS).max(MAX_LEASE_SECONDS),
  max_turns: z.int().min(1).nullable(),
  /** The same on every node, so that it belongs to no folder of one. */
  shared_roots: z.array(
    z
      .string()
      .refine((text) => /^(~?[/\\]|~$|[a-z]:[/\\])/i.test(text), 'must be an absolute path, the same on every node'),
  ),
  local_workspaces: z.boolean(),
});
