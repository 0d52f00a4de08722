// To which tree a request belongs, read from its head alone (16 §5.2).
import type { FastifyRequest } from 'fastify';
import type { Engine } from '#core/engine/create-engine.ts';
import { gatewayRoot } from '#core/engine/gateway-call.ts';
import type { SessionId } from '#protocol/ids.ts';
import { ConfirmationIdSchema, SessionIdSchema } from '#protocol/scalars.ts';
import { clientOf } from '../gateway/identity.ts';

export interface Target {
  readonly root: SessionId;
  /** A turn is to begin: it runs where there is room for it. */
  readonly turn: boolean;
  /** May be sent again though it may have been done: then it changes nothing, or is answered as the first. */
  readonly repeatable: boolean;
}

/** Null for what any node answers: reads, what makes a new tree, and ids that nobody has. */
export async function targetOf(engine: Engine, request: FastifyRequest): Promise<Target | null> {
  const root = await rootOf(engine, request);
  if (root === null) return null;
  const { method, headers, routeOptions } = request;
  const { turn = false, repeatable = false } = routeOptions.config;
  const again = repeatable || method === 'PATCH' || method === 'DELETE' || headers['idempotency-key'] !== undefined;
  return { root, turn, repeatable: again };
}

async function rootOf(engine: Engine, request: FastifyRequest): Promise<SessionId | null> {
  if (request.routeOptions.config.gateway_call === true) return gatewayRoot(engine, clientOf(request));
  if (request.method === 'GET' || request.method === 'HEAD') return null;
  const { session_id, confirmation_id } = (request.params ?? {}) as Readonly<Record<string, unknown>>;
  const session = SessionIdSchema.safeParse(session_id);
  if (session.success) return rootOfSession(engine, session.data);
  const confirmation = ConfirmationIdSchema.safeParse(confirmation_id);
  if (!confirmation.success) return null;
  return (await engine.store.confirmations.record(confirmation.data))?.root_session_id ?? null;
}

async function rootOfSession({ store, trees }: Engine, id: SessionId): Promise<SessionId | null> {
  if (trees.holds(id)) return id;
  return (await store.sessions.record(id))?.root_session_id ?? null;
}
