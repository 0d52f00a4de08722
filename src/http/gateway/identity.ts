// Identifies a gateway request: the caller by its key, the session by the client's own headers (19 §2.3, §2.7).
import { timingSafeEqual } from 'node:crypto';
import type { FastifyRequest } from 'fastify';
import type { GatewayClient } from '#core/engine/gateway-call.ts';
import { type Caller, hashToken, type People } from '#core/engine/manage-people.ts';
import type { Config } from '#protocol/config.ts';
import { AppError, validationError } from '#protocol/errors.ts';
import { makeGatewayKeyId, type Person } from '#protocol/people/person.ts';
import { UsdLimitSchema, WorkspacePathSchema } from '#protocol/scalars.ts';
import { parseBearer } from '../access.ts';
import { isRepeated } from '../gates.ts';
import { requireRole } from '../roles.ts';

const MAX_REF = 200;
/** The limit of a worker's name in reports. */
const MAX_TYPE = 128;
const PRODUCT = /^[A-Za-z0-9][A-Za-z0-9._-]{0,63}/;

interface ClientGate {
  readonly config: Pick<Config, 'gateway'>;
  readonly people: People;
  /** Records a token that was refused. */
  readonly noteRefusal: (request: FastifyRequest) => void;
}

/**
 * Creates gate 4 of the gateway's paths. It requires a token of a member or an admin, or a key of the gateway, if any is
 * configured. With `credentials: client` the provider's key is in the usual header, so the token of Metis has its own.
 */
export function createClientGate({ config: { gateway }, people, noteRefusal }: ClientGate) {
  const keys = Object.entries(gateway.keys).map(([name, { token_sha256 }]) => ({
    digest: Buffer.from(token_sha256, 'hex'),
    person: { id: makeGatewayKeyId(name), name, role: 'member', workspaces: null } satisfies Person,
  }));
  const own = gateway.credentials === 'client';

  function findKey(token: string): Caller | null {
    const given = hashToken(token);
    let found: Caller | null = null;
    // Every digest is compared, so that the time does not depend on which one matches.
    for (const { digest, person } of keys)
      if (timingSafeEqual(digest, given)) found = { person, digest: given.toString('hex') };
    return found;
  }

  return async function admitClient(request: FastifyRequest): Promise<void> {
    if (!people.isRequired() && keys.length === 0) return;
    const token = own ? readSingleHeader(request, 'x-metis-token') : readToken(request);
    const caller = token === null ? null : (findKey(token) ?? (await people.recognize(token)));
    if (caller === null) {
      if (token !== null) noteRefusal(request);
      const where = own ? 'x-metis-token' : 'Authorization: Bearer or x-api-key';
      throw new AppError('unauthorized', `send a token of a member or an admin, or a key of gateway.keys, as ${where}`);
    }
    request.tokenHash = caller.digest;
    request.person = caller.person;
    requireRole(caller.person, 'member');
  };
}

/** The token in the header of either wire format. */
function readToken(request: FastifyRequest): string | null {
  return parseBearer(readSingleHeader(request, 'authorization') ?? undefined) ?? readSingleHeader(request, 'x-api-key');
}

/** Null for a header that is missing or repeated: a proxy in front may have checked the other value. */
function readSingleHeader(request: FastifyRequest, name: string): string | null {
  const value = request.headers[name];
  if (typeof value !== 'string' || isRepeated(request, name)) return null;
  return value;
}

/** Throws `validation_error` for an invalid limit or workspace. */
export function readClient(request: FastifyRequest): GatewayClient {
  const ref = (name: string) => readReference(request.headers[name], MAX_REF);
  const product = PRODUCT.exec(request.headers['user-agent'] ?? '')?.[0] ?? 'unknown';
  const { id: owner, name: caller } = request.person;
  return { ...readNames(ref), caller, owner, product, ...readLimits(request) };
}

type Names = Pick<GatewayClient, 'root' | 'worker' | 'parent' | 'above_root' | 'worker_type'>;
type Ref = (name: string) => string | null;

const NO_NAMES: Names = { root: null, worker: null, parent: null, above_root: null, worker_type: null };

/** The session headers of known clients. The first entry that finds a root applies. */
const NAMINGS: readonly ((ref: Ref) => Partial<Names>)[] = [
  (ref) => ({ root: ref('x-metis-session'), worker: ref('x-metis-agent'), parent: ref('x-metis-parent-agent') }),
  claudeCodeNames,
  // opencode and programs built on it: each session has its own name, and a sub-agent's session names its parent. For
  // models of OpenAI these clients also send Codex's header, without a thread.
  (ref) => ({ root: ref('x-session-id') ?? ref('x-session-affinity'), above_root: ref('x-parent-session-id') }),
  codexNames,
  // pi, and versions of Codex that did not name threads.
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

/** Null for a value that is too long or not printable. */
function readReference(value: string | readonly string[] | undefined, most: number): string | null {
  if (typeof value !== 'string' || value === '' || value.length > most) return null;
  if (/^[\x20-\x7e]+$/.test(value)) return value;
  return null;
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
