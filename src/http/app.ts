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
    /** No token needed and no rate limit: the health routes. */
    open?: boolean;
    /** Takes WebSocket upgrades; a token may then come in the first frame. */
    upgrade?: boolean;
  }
  interface FastifyRequest {
    /** SHA-256 (hex) of the caller's token; '' without one. */
    tokenHash: string;
    /** False only on an upgrade whose token is still to come by frame. */
    authorised: boolean;
  }
}
