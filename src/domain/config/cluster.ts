// Several nodes on one PostgreSQL: where it is, how this node is called and reached (16 §11).
import { z } from 'zod';

const MIN_LEASE_SECONDS = 3;
const MAX_LEASE_SECONDS = 120;

function urlOf(protocols: readonly string[], example: string) {
  return z
    .string()
    .refine(
      (text) => URL.canParse(text) && protocols.includes(new URL(text).protocol),
      `must be a URL like ${example}`,
    );
}

export const DatabaseSchema = z.strictObject({
  /** Null = SQLite, one process; else the switch to cluster mode. */
  url: urlOf(['postgres:', 'postgresql:'], 'postgres://user:password@host:5432/database').nullable(),
  pool_size: z.int().min(2).max(1000),
  synchronous_commit: z.enum(['on', 'off']),
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
  shared_roots: z.array(z.string().min(1)),
  local_workspaces: z.boolean(),
});
