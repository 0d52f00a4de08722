// What routes that start work share: idempotency keys and `Prefer: wait` (05 §1.8, 18 §2).
import type { FastifyReply, FastifyRequest, preValidationHookHandler } from 'fastify';
import { type IdempotencyRow, JournalConflict, type Write } from '#core/ports/journal-writer.ts';
import type { Store } from '#core/ports/store-reader.ts';
import type { Awaitable } from '#protocol/async/awaitable.ts';
import type { Clock } from '#protocol/clock.ts';
import { AppError, validationError } from '#protocol/errors.ts';
import { canonicalJson, sha256Hex } from '#protocol/text/canonical-json.ts';

const KEPT_MS = 24 * 60 * 60 * 1000;
const KEY_PATTERN = /^[\x20-\x7e]{1,255}$/;

/** Makes the row that is written with the effect. */
type Claim = (status: number, body: unknown) => Write;

export interface Idempotency {
  /** Takes the body as it came, before defaults are filled in: a `preValidation` hook. */
  readonly remember: preValidationHookHandler;
  /**
   * Runs `effect` unless the key has an answer already, and sets `Idempotency-Replayed` then.
   * Throws `validation_error`, `idempotency_in_progress` or `idempotency_key_reused`.
   */
  once<T>(request: FastifyRequest, reply: FastifyReply, effect: (claim?: Claim) => Promise<T>): Promise<T>;
}

declare module 'fastify' {
  interface FastifyRequest {
    /** SHA-256 of the canonical JSON body; '' without a key. */
    bodyHash: string;
  }
}

export function createIdempotency({ store, clock }: { store: Store; clock: Clock }): Idempotency {
  // In memory only: a crash frees the key, as it undoes the effect.
  const running = new Map<string, string>();

  async function findStored(request: FastifyRequest, scope: KeyScope): Promise<IdempotencyRow | null> {
    const row = await store.idempotency(scope.method, scope.path, scope.token_hash, scope.key);
    if (row === null || row.expires_at <= clock.now()) return null;
    if (row.body_hash !== request.bodyHash) throw toKeyReusedError();
    return row;
  }

  function createClaim(request: FastifyRequest, scope: KeyScope): Claim {
    return (status, body) => ({
      kind: 'idempotency.insert',
      row: {
        ...scope,
        session_id: findSessionId(body),
        body_hash: request.bodyHash,
        status,
        response_json: JSON.stringify(body),
        expires_at: clock.now() + KEPT_MS,
      },
    });
  }

  async function runOnce<T>(
    request: FastifyRequest,
    reply: FastifyReply,
    scope: KeyScope,
    effect: (claim?: Claim) => Promise<T>,
  ): Promise<T> {
    const id = JSON.stringify(scope);
    const other = running.get(id);
    if (other !== undefined) throw other === request.bodyHash ? toInProgressError() : toKeyReusedError();
    running.set(id, request.bodyHash);
    try {
      const row = await findStored(request, scope);
      if (row === null) return await effect(createClaim(request, scope));
      return replay(row, reply);
    } catch (error) {
      if (!(error instanceof JournalConflict && error.code === 'idempotency_exists')) throw error;
      // Stored since the look: nothing of this one was written, and the answer is the other one's.
      const row = await findStored(request, scope);
      if (row === null) throw toInProgressError();
      return replay(row, reply);
    } finally {
      running.delete(id);
    }
  }

  return {
    remember(request, _reply, done) {
      if (request.headers['idempotency-key'] !== undefined) request.bodyHash = sha256Hex(canonicalJson(request.body));
      done();
    },
    once: (request, reply, effect) => {
      const scope = readKeyScope(request);
      if (scope === null) return effect();
      return runOnce(request, reply, scope, effect);
    },
  };
}

function replay<T>(row: IdempotencyRow, reply: FastifyReply): T {
  reply.header('idempotency-replayed', 'true');
  return JSON.parse(row.response_json) as T;
}

type KeyScope = Pick<IdempotencyRow, 'method' | 'path' | 'token_hash' | 'key'>;

function readKeyScope(request: FastifyRequest): KeyScope | null {
  const key = request.headers['idempotency-key'];
  if (key === undefined) return null;
  if (typeof key !== 'string' || !KEY_PATTERN.test(key)) {
    throw validationError([{ path: 'Idempotency-Key', message: 'must be 1 to 255 printable ASCII characters' }]);
  }
  const path = request.url.split('?', 1)[0] ?? '';
  return { method: request.method, path, token_hash: request.tokenHash, key };
}

/** The session an answer belongs to, so that a purge takes the row along. */
function findSessionId(body: unknown): string | null {
  const { session_id, id, session } = body as {
    readonly session_id?: string;
    readonly id?: string;
    readonly session?: { readonly id: string };
  };
  return session_id ?? id ?? session?.id ?? null;
}

function toInProgressError(): AppError {
  return new AppError('idempotency_in_progress', 'the first request with this key is still running');
}
function toKeyReusedError(): AppError {
  return new AppError('idempotency_key_reused', 'this key was used with another body; take a new key');
}

const MAX_WAIT_SECONDS = 600;

/**
 * Waits as long as the request asks for, at most until its client or the server goes; false when it did not ask.
 * @param wait resolves earlier when there is nothing to wait for any more
 */
export function waitAsPreferred(
  { closing }: { readonly closing: AbortSignal },
  request: FastifyRequest,
  wait: (ms: number, signal: AbortSignal) => Promise<void>,
): Awaitable<boolean> {
  const seconds = parseWait(request.headers.prefer);
  if (seconds === null) return false;
  return waitSeconds(closing, request, (signal) => wait(seconds * 1000, signal));
}

async function waitSeconds(
  closing: AbortSignal,
  request: FastifyRequest,
  wait: (signal: AbortSignal) => Promise<void>,
): Promise<true> {
  const enough = new AbortController();
  const stop = () => enough.abort();
  const { socket } = request.raw;
  socket.once('close', stop);
  closing.addEventListener('abort', stop);
  try {
    await wait(enough.signal);
  } finally {
    // Both outlive this request.
    socket.off('close', stop);
    closing.removeEventListener('abort', stop);
  }
  return true;
}

/** Whole seconds of a `wait` preference, at most 600; null without one. */
function parseWait(prefer: string | string[] | undefined): number | null {
  const seconds = /(?:^|[,;])\s*wait\s*=\s*"?(\d{1,9})"?\s*(?:$|[,;])/i.exec([prefer ?? ''].flat().join(','))?.[1];
  if (seconds === undefined) return null;
  return Math.min(MAX_WAIT_SECONDS, Number(seconds));
}
