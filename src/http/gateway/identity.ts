// Who calls the gateway: the key of the request, and the client's own headers for its sessions (19 §2.3, §2.7).
import type { FastifyRequest } from 'fastify';
import type { GatewayClient } from '#core/engine/gateway-call.ts';
import type { Config } from '#protocol/config.ts';
import { AppError, validationError } from '#protocol/errors.ts';
import { UsdLimitSchema, WorkspacePathSchema } from '#protocol/scalars.ts';
import { createDigestCheck, parseBearer, type TokenCheck } from '../access.ts';
import { isRepeated } from '../gates.ts';

const MAX_REF = 200;
/** A worker's name may be as long in reports. */
const MAX_TYPE = 128;
const PRODUCT = /^[A-Za-z0-9][A-Za-z0-9._-]{0,63}/;

/**
 * Gate 4 of the gateway's paths: a token of the server or a key of the gateway, where either is configured. In the mode
 * in which the client's credential goes on to the provider, ours has a header of its own.
 */
export function createClientGate({ gateway }: Pick<Config, 'gateway'>, tokens: TokenCheck) {
  const callers = new Map(Object.entries(gateway.keys).map(([name, { token_sha256 }]) => [token_sha256, name]));
  const keys = createDigestCheck([...callers.keys()]);
  const own = gateway.credentials === 'client';

  return function admitClient(request: FastifyRequest): void {
    if (!tokens.required && !keys.required) return;
    const token = own ? readSingleHeader(request, 'x-metis-token') : readToken(request);
    const ours = token === null ? null : tokens.accept(token);
    const key = token === null || ours !== null ? null : keys.accept(token);
    const hash = ours ?? key;
    if (hash === null) {
      const where = own ? 'x-metis-token' : 'Authorization: Bearer or x-api-key';
      throw new AppError('unauthorized', `send a token of server.auth_tokens or gateway.keys as ${where}`);
    }
    request.tokenHash = hash;
    request.caller = key === null ? '' : (callers.get(key) ?? '');
  };
}

/** As clients of either wire send it. */
function readToken(request: FastifyRequest): string | null {
  return parseBearer(readSingleHeader(request, 'authorization') ?? undefined) ?? readSingleHeader(request, 'x-api-key');
}

/** Null for what is not there, or there twice: a proxy in front may have judged the other. */
function readSingleHeader(request: FastifyRequest, name: string): string | null {
  const value = request.headers[name];
  return typeof value !== 'string' || isRepeated(request, name) ? null : value;
}

/** Throws `validation_error` for a limit or a workspace that is none. */
export function readClient(request: FastifyRequest): GatewayClient {
  const ref = (name: string) => readReference(request.headers[name], MAX_REF);
  const product = PRODUCT.exec(request.headers['user-agent'] ?? '')?.[0] ?? 'unknown';
  return { ...readNames(ref), caller: request.caller, product, ...readLimits(request) };
}

type Names = Pick<GatewayClient, 'root' | 'worker' | 'parent' | 'above_root' | 'worker_type'>;
type Ref = (name: string) => string | null;

const NO_NAMES: Names = { root: null, worker: null, parent: null, above_root: null, worker_type: null };

/** How the known programs name their sessions; the first that finds its header counts. */
const NAMINGS: readonly ((ref: Ref) => Partial<Names>)[] = [
  (ref) => ({ root: ref('x-metis-session'), worker: ref('x-metis-agent'), parent: ref('x-metis-parent-agent') }),
  claudeCodeNames,
  // opencode and what is built on it: each of its sessions by its own name, a sub-agent's with the one above it. For
  // OpenAI's models it sends Codex's header too, without a thread.
  (ref) => ({ root: ref('x-session-id') ?? ref('x-session-affinity'), above_root: ref('x-parent-session-id') }),
  codexNames,
  // pi, and Codex before it named threads.
  (ref) => ({ root: ref('session_id') }),
  // goose.
  (ref) => ({ root: ref('agent-session-id') }),
];

function readNames(ref: Ref): Names {
  const found = NAMINGS.map((naming) => naming(ref)).find(({ root }) => root !== null);
  return { ...NO_NAMES, ...found };
}

function claudeCodeNames(ref: Ref): Partial<Names> {
  return {
    root: ref('x-claude-code-session-id'),
    worker: ref('x-claude-code-agent-id'),
    parent: ref('x-claude-code-parent-agent-id'),
    worker_type: ref('x-claude-code-agent-type')?.slice(0, MAX_TYPE) ?? null,
  };
}

function codexNames(ref: Ref): Partial<Names> {
  const root = ref('session-id');
  const thread = ref('thread-id');
  const parent = ref('x-codex-parent-thread-id');
  return { root, worker: thread === root ? null : thread, parent: parent === root ? null : parent };
}

/** Printable and of a decent length, else it counts as not sent. */
function readReference(value: string | readonly string[] | undefined, most: number): string | null {
  if (typeof value !== 'string' || value === '' || value.length > most) return null;
  return /^[\x20-\x7e]+$/.test(value) ? value : null;
}

function readLimits({ headers }: FastifyRequest): Pick<GatewayClient, 'workspace' | 'budget_usd'> {
  const readLimit = (name: string, schema: typeof UsdLimitSchema | typeof WorkspacePathSchema): string | null => {
    const value = headers[name];
    if (value === undefined) return null;
    const parsed = schema.safeParse(value);
    if (parsed.success) return parsed.data;
    throw validationError([{ path: name, message: parsed.error.issues[0]?.message ?? 'is invalid' }]);
  };
  return {
    workspace: readLimit('x-metis-workspace', WorkspacePathSchema),
    budget_usd: readLimit('x-metis-budget-usd', UsdLimitSchema),
  };
}
