// The typed fastify instance of this server, and what is added to its requests and routes.

import type {} from '@fastify/websocket';
import type {
  FastifyBaseLogger,
  FastifyInstance,
  RawReplyDefaultExpression,
  RawRequestDefaultExpression,
  RawServerDefault,
} from 'fastify';
import type { ZodTypeProvider } from 'fastify-type-provider-zod';
import type { ClientWire } from '#protocol/api/gateway.ts';
import type { MetricGauges } from './deps.ts';

/** Fastify whose handlers see the types of their zod schemas. */
export type HttpApp = FastifyInstance<
  RawServerDefault,
  RawRequestDefaultExpression,
  RawReplyDefaultExpression,
  FastifyBaseLogger,
  ZodTypeProvider
>;

declare module 'fastify' {
  /** What a route asks of the gates (05 §1.2). */
  interface FastifyContextConfig {
    /** Where no token is needed: everywhere, or where the server listens for this machine only. */
    open?: 'everywhere' | 'on_loopback';
    /** No rate limit: the health routes. */
    unlimited?: boolean;
    /** Callers come with a key of the gateway, and are answered in their own wire. */
    gateway?: ClientWire;
    /** A call of a client, for a session that its headers name. */
    gateway_call?: boolean;
    /** Starts a turn. */
    turn?: boolean;
    /** Done twice it is as done once. PATCH, DELETE and what has an `Idempotency-Key` need not say so. */
    repeatable?: boolean;
    /** Takes WebSocket upgrades; a token may then come in the first frame. */
    upgrade?: boolean;
  }
  interface FastifyInstance {
    /** What is going on at this moment, for metrics. */
    gauges(): Promise<MetricGauges>;
  }
  interface FastifyRequest {
    /** SHA-256 (hex) of the caller's token; '' without one. */
    tokenHash: string;
    /** Name of the gateway's key that came with the call; '' without one. */
    caller: string;
    /** False only on an upgrade whose token is still to come by frame. */
    authorised: boolean;
  }
}
