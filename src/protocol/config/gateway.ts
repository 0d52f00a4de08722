// Settings of the gateway: whose credentials, which keys, how long a call waits for money (19 §6).
import { z } from 'zod';
import { Sha256Schema, UsdLimitSchema } from '../scalars.ts';

const MAX_WAIT_SECONDS = 3600;

const GatewayKeySchema = z.strictObject({
  token_sha256: Sha256Schema,
  daily_usd: UsdLimitSchema.nullable().default(null),
});

export const GatewaySchema = z.strictObject({
  credentials: z.enum(['server', 'client']),
  rules_apply_to: z.enum(['none', 'workers', 'all']),
  /** By the name that sessions bear as their `caller`. */
  keys: z.record(
    z.string().regex(/^[A-Za-z0-9_-]{1,64}$/, 'must be a name of letters, digits, _ and -'),
    GatewayKeySchema,
  ),
  wait_seconds: z.int().min(0).max(MAX_WAIT_SECONDS),
  min_output_tokens: z.int().min(1),
  body_limit_bytes: z.int().min(1),
  /** 0 switches the gateway off. */
  max_streams: z.int().min(0),
  record: z.string().min(1).nullable(),
});
