// Routes each request to the node that owns its tree, or to the node that claims it (16 §5).
import { Readable } from 'node:stream';
import type { FastifyReply, FastifyRequest } from 'fastify';
import type { Engine } from '#core/engine/create-engine.ts';
import { gatewayRoot } from '#core/engine/gateway-call.ts';
import { shuttingDownError } from '#core/engine/lifecycle.ts';
import { NO_METER } from '#core/ports/meter.ts';
import type { Hold } from '#core/ports/tree-ownership.ts';
import { type Clock, sleep, type Timer } from '#protocol/clock.ts';
import { AppError } from '#protocol/errors.ts';
import type { SessionId } from '#protocol/ids.ts';
import type { Person } from '#protocol/people/person.ts';
import { ConfirmationIdSchema, SessionIdSchema } from '#protocol/scalars.ts';
import type { BodyDiscard } from '../connections.ts';
import { readClient } from '../gateway/identity.ts';
import type { HttpApp, RouteDeps } from '../http-app.ts';
import { isHidden } from '../visibility.ts';
import { createExchange, type HeldBody, holdBody, toHeldBody } from './exchange.ts';
import { FORWARDED, markNotTaken } from './headers.ts';
import { chooseNode, type Owners, type Patience, type Reach } from './other-nodes.ts';

// The tree of a request is read from its head alone (16 §5.2).

interface Target {
  readonly root: SessionId;
  /** The request starts a turn, which may run on any node with a free place. */
  readonly turn: boolean;
  /** Sending the request twice is safe: the second one changes nothing or gets the first one's answer. */
  readonly repeatable: boolean;
}

/** Null for requests that any node answers: reads, creation of a tree, and unknown ids. */
async function findTarget(engine: Engine, request: FastifyRequest): Promise<Target | null> {
  const root = await findRoot(engine, request);
  if (root === null) return null;
  const { method, headers, routeOptions } = request;
  const { turn = false, repeatable = false } = routeOptions.config;
  const again = repeatable || method === 'PATCH' || method === 'DELETE' || headers['idempotency-key'] !== undefined;
  return { root, turn, repeatable: again };
}

async function findRoot(engine: Engine, request: FastifyRequest): Promise<SessionId | null> {
  if (request.routeOptions.config.gateway_call === true) return gatewayRoot(engine, readClient(request));
  if (request.method === 'GET' || request.method === 'HEAD') return null;
  const { session_id, worker_session_id, confirmation_id } = (request.params ?? {}) as Readonly<
    Record<string, unknown>
  >;
  const session = SessionIdSchema.safeParse(session_id ?? worker_session_id);
  // A session that does not exist for the caller is answered here, as an unknown one is.
  if (session.success) return findSessionRoot(engine, request.person, session.data);
  const confirmation = ConfirmationIdSchema.safeParse(confirmation_id);
  if (!confirmation.success) return null;
  const root = (await engine.store.confirmations.record(confirmation.data))?.root_session_id ?? null;
  if (root === null || (await isHidden(engine, request.person, root))) return null;
  return root;
}

async function findSessionRoot(engine: Engine, person: Person, id: SessionId): Promise<SessionId | null> {
  const { store, trees } = engine;
  if (await isHidden(engine, person, id)) return null;
  if (trees.holds(id)) return id;
  return (await store.sessions.record(id))?.root_session_id ?? null;
}

/** For a server that owns every tree. */
const ALL_HERE: Owners = {
  answerRead: async () => false,
  answerElsewhere: async () => false,
  answerAt: async () => false,
  endSession: null,
};

declare module 'fastify' {
  interface FastifyRequest {
    /** The body as far as it was read for another node; set when this node answers after all. */
    heldBody: HeldBody | null;
    /** The body as its caller sent it, before defaults are filled in. */
    givenBody: unknown;
  }
}

type Deps = Pick<RouteDeps, 'engine' | 'closing' | 'draining' | 'meter'> & {
  readonly patience: Patience;
  readonly reach: Reach;
  readonly discard: BodyDiscard;
  readonly bodyLimit: number;
};

/** Installs the hooks that find the owner of a request's tree. Call it after the gates and before any route. */
export function installOwners(app: HttpApp, deps: Deps): Owners {
  const { engine, closing, draining, patience, reach: others, discard } = deps;
  const { trees, clock, places } = engine;
  if (!trees.several) return ALL_HERE;
  const exchange = createExchange(clock, discard, deps.meter ?? NO_METER);
  const waits = { silenceMs: patience.silence_ms, answerMs: patience.answer_ms };
  app.decorateRequest('heldBody', null);
  app.decorateRequest('givenBody', null);
  app.addHook('onClose', () => exchange.close());
  app.addHook('onRequest', async (request, reply) => {
    const target = await findTarget(engine, request);
    if (target === null) return;
    const most = request.routeOptions.bodyLimit ?? deps.bodyLimit;
    // The body is kept only if the request is forwarded.
    const body = () => {
      request.heldBody ??= holdBody(request.raw, most);
      return request.heldBody;
    };
    try {
      if ((await routeRequest(request, reply, { ...target, body })) === 'elsewhere') return reply;
      return undefined;
    } catch (error) {
      request.heldBody?.discard();
      throw error;
    }
  });
  app.addHook('preParsing', async ({ heldBody }, _reply, payload) =>
    heldBody === null ? payload : Readable.from(heldBody.readFromStart(), { objectMode: false }),
  );
  app.addHook('preValidation', async (request) => {
    request.givenBody = request.body;
  });

  /** Returns `here` once this node holds the tree; it keeps the hold until the answer is complete. */
  async function routeRequest(
    request: FastifyRequest,
    reply: FastifyReply,
    { root, turn, repeatable, body }: Target & { readonly body: () => HeldBody },
  ): Promise<'here' | 'elsewhere'> {
    if (request.headers[FORWARDED] !== undefined) {
      await acceptForwarded(request, reply, root);
      return 'here';
    }
    const gone = watchCaller(reply, closing);
    const until = clock.monotonic() + patience.total_ms;
    try {
      for (;;) {
        if (draining()) throw shuttingDownError();
        const at = await locateTree(reply, root, turn);
        if (at === 'here') return at;
        if (at !== null) {
          const how = { ...at, repeatable, body: body(), ...waits, signal: gone.signal };
          const tried = await exchange.send(request, reply, how);
          if (tried === 'answered') return 'elsewhere';
          if (tried === 'broken' && !repeatable) throw toBrokenOffError();
        }
        if (clock.monotonic() >= until) throw toUnreachableError();
        await sleep(clock, patience.between_ms, gone.signal);
      }
    } finally {
      gone.forget();
    }
  }

  /** The node that owns the tree now; null while no node can take it. */
  async function locateTree(reply: FastifyReply, root: SessionId, turn: boolean): Promise<Where | 'here' | null> {
    const hold = await trees.hold(root, turn && places.isFull() ? 'look' : 'claim');
    if (hold === null || hold.own) return holdUntilAnswered(reply, hold);
    const { url, epoch, place } = hold;
    if (url !== null) return { url, epoch };
    const self = trees.node;
    const able = (await trees.nodes()).filter((node) => node.id === self || others.canReach(node));
    const nodes = able.map((node) => (node.id === self ? { ...node, turns: places.countTaken() } : node));
    const node = chooseNode(place, nodes, self);
    if (node === null) return null;
    if (node.id !== self) return { url: node.url, epoch: 0 };
    const own = await trees.hold(root);
    if (own?.own === false) return null;
    return holdUntilAnswered(reply, own);
  }

  /** Takes the hold for a request that another node forwarded. */
  async function acceptForwarded(request: FastifyRequest, reply: FastifyReply, root: SessionId): Promise<void> {
    sendHeartbeats(reply, clock, patience.alive_ms);
    const epoch = readEpoch(request);
    const hold = await trees.hold(root, epoch === 0 ? 'claim' : 'look');
    if (hold === null) return;
    if (hold.own && (epoch === 0 || hold.epoch === epoch)) holdUntilAnswered(reply, hold);
    else {
      if (hold.own) hold.release();
      markNotTaken(request, reply);
      throw toMisdirectedError();
    }
  }

  return {
    async answerRead(request, reply, root) {
      if (trees.holds(root)) return false;
      if (request.headers[FORWARDED] !== undefined) {
        markNotTaken(request, reply);
        throw toMisdirectedError();
      }
      const hold = await trees.hold(root, 'look');
      if (hold?.own === true) hold.release();
      if (hold === null || hold.own || hold.url === null) return false;
      const gone = watchCaller(reply, closing);
      try {
        const { url, epoch } = hold;
        const { signal } = gone;
        const how = { url, epoch, repeatable: true, body: NO_BODY, ...waits, silenceMs: patience.read_ms, signal };
        return (await exchange.send(request, reply, how)) === 'answered';
      } finally {
        gone.forget();
      }
    },
    async answerElsewhere(request, reply, root) {
      const body = copyGivenBody(request);
      const how = { root, turn: false, repeatable: true, body: () => body };
      return (await routeRequest(request, reply, how)) === 'elsewhere';
    },
    async answerAt(request, reply, node) {
      if (request.headers[FORWARDED] !== undefined) sendHeartbeats(reply, clock, patience.alive_ms);
      if (request.headers[FORWARDED] !== undefined || node === trees.node) return false;
      const there = (await trees.nodes()).find(({ id }) => id === node);
      // That node is gone, and its connections with it. The client starts a new session.
      if (there === undefined) return false;
      const gone = watchCaller(reply, closing);
      try {
        const body = request.method === 'POST' ? copyGivenBody(request) : NO_BODY;
        const { signal } = gone;
        const how = { url: there.url, epoch: 0, repeatable: false, body, ...waits, signal };
        if ((await exchange.send(request, reply, how)) === 'answered') return true;
        throw toUnreachableError();
      } finally {
        gone.forget();
      }
    },
    async endSession({ headers: { authorization } }, session) {
      // By way of this node, which finds the one that holds it, or holds it itself.
      const status = await exchange
        .ask(`${trees.url}/sessions/${session}`, 'DELETE', authorization === undefined ? {} : { authorization })
        .catch(() => 0);
      if (status !== 200 && status !== 404 && status !== 409) throw toUnreachableError();
    },
  };
}

interface Where {
  readonly url: string;
  readonly epoch: number;
}

const NO_BODY = toHeldBody(Buffer.alloc(0));

/** The body as it was sent, for a request whose body has been read. An `Idempotency-Key` is bound to these bytes. */
function copyGivenBody(request: FastifyRequest): HeldBody {
  return toHeldBody(Buffer.from(JSON.stringify(request.givenBody)));
}

/** Releases the hold when the answer is complete. A request for an unknown tree is also answered here, as not found. */
function holdUntilAnswered({ raw }: FastifyReply, hold: Extract<Hold, { own: true }> | null): 'here' {
  if (hold !== null && raw.closed) hold.release();
  else if (hold !== null) raw.once('close', () => hold.release());
  return 'here';
}

/** The epoch that the other node saw; -1 for an invalid header. */
function readEpoch({ headers }: FastifyRequest): number {
  const text = String(headers[FORWARDED]);
  if (/^\d{1,15}$/.test(text)) return Number(text);
  return -1;
}

/** Aborts when the caller disconnects or this node shuts down. */
function watchCaller({ raw }: FastifyReply, closing: AbortSignal) {
  const gone = new AbortController();
  const onCallerGone = () => gone.abort(new AppError('node_unavailable', 'the caller left'));
  const onShutdown = () => gone.abort(shuttingDownError());
  raw.once('close', onCallerGone);
  closing.addEventListener('abort', onShutdown, { once: true });
  if (closing.aborted) onShutdown();
  else if (raw.closed) onCallerGone();
  return {
    signal: gone.signal,
    forget() {
      raw.off('close', onCallerGone);
      closing.removeEventListener('abort', onShutdown);
    },
  };
}

/** Sends interim answers to the waiting node until the answer begins, which may take minutes. */
function sendHeartbeats({ raw }: FastifyReply, clock: Clock, everyMs: number): void {
  let timer: Timer | null = null;
  const sendHeartbeat = () => {
    if (raw.headersSent || raw.closed) return;
    raw.writeProcessing();
    timer = clock.after(everyMs, sendHeartbeat);
  };
  raw.once('close', () => timer?.cancel());
  sendHeartbeat();
}

function toUnreachableError(): AppError {
  return new AppError('node_unavailable', 'the node that works on this session cannot be reached; try again soon');
}
function toBrokenOffError(): AppError {
  return new AppError(
    'node_unavailable',
    'the node that works on this session broke off, and may have done what was asked; look, or send an Idempotency-Key with it',
  );
}
function toMisdirectedError(): AppError {
  return new AppError(
    'misdirected_request',
    'this node does not own the session at that epoch; leave X-Metis-Forwarded out',
  );
}
