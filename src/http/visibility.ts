// Which sessions exist for a caller, and which it may work in (23 §1): asked once for every route, before its handler.
import type { FastifyRequest } from 'fastify';
import type { Engine } from '#core/engine/create-engine.ts';
import { recordAudit } from '#core/engine/manage-people.ts';
import { isBelow } from '#core/policy/cluster/tree-place.ts';
import type { Store } from '#core/ports/store-reader.ts';
import { AppError } from '#protocol/errors.ts';
import type { ConfirmationId } from '#protocol/ids.ts';
import type { Person, Reader } from '#protocol/people/person.ts';
import { canSee, canWrite } from '#protocol/people/rights.ts';
import { ConfirmationIdSchema, SessionIdSchema, WorkspacePathSchema } from '#protocol/scalars.ts';
import type { Session, SessionRecord } from '#protocol/session.ts';
import { notFound } from './error-handler.ts';
import { endHook } from './gates.ts';
import type { HttpApp } from './http-app.ts';
import { forbidden, getOperationRole } from './roles.ts';

/** How a list is restricted; null = an admin, who sees all. */
export function toReader({ id, role }: Person): Reader {
  if (role === 'admin') return null;
  return { id };
}

/** Whether a private session of another owner does not exist for this person. */
export async function isHidden({ store }: Pick<Engine, 'store'>, person: Person, sessionId: string): Promise<boolean> {
  if (person.role === 'admin') return false;
  const session = await store.sessions.record(sessionId);
  return session !== null && !canSee(person, session);
}

/** The session for a person: an original that does not exist for it is not named as what it was forked from. */
export async function hideOrigin<S extends Pick<Session, 'forked_from'>>(
  { sessions }: Pick<Store, 'sessions'>,
  person: Person,
  session: S,
): Promise<S> {
  if (session.forked_from === null || person.role === 'admin') return session;
  const origin = await sessions.record(session.forked_from.session_id);
  if (origin !== null && canSee(person, origin)) return session;
  return { ...session, forked_from: null };
}

/** What a request names: a field of its path, its query or its body. */
interface Named {
  readonly session: string | null;
  /** Another session, to compare with. */
  readonly other: string | null;
  readonly confirmation: ConfirmationId | null;
  readonly workspaces: readonly string[];
}

const NOTHING_NAMED: Named = { session: null, other: null, confirmation: null, workspaces: [] };

function readNamed({ params, query, body, headers, routeOptions }: FastifyRequest): Named {
  const [inPath, inQuery, inBody] = [params, query, body].map(asFields) as [Fields, Fields, Fields];
  const session = SessionIdSchema.safeParse(
    inPath.session_id ?? inPath.worker_session_id ?? inQuery.session_id ?? inBody.session_id,
  );
  const other = SessionIdSchema.safeParse(inQuery.with);
  const confirmation = ConfirmationIdSchema.safeParse(inPath.confirmation_id);
  const workspaces =
    routeOptions.config.gateway_call === true
      ? [headers['x-metis-workspace']]
      : [inQuery.workspace_path, inBody.workspace_path, asFields(inBody.experiment).start_path];
  return {
    session: session.success ? session.data : null,
    other: other.success ? other.data : null,
    confirmation: confirmation.success ? confirmation.data : null,
    workspaces: workspaces.flatMap((given) => WorkspacePathSchema.safeParse(given).data ?? []),
  };
}

type Fields = Readonly<Record<string, unknown>>;

function asFields(value: unknown): Fields {
  if (typeof value !== 'object' || value === null) return {};
  return value as Fields;
}

/** Installs the check behind the validation of a request. A server that requires no token has none. */
export function installVisibility(app: HttpApp, engine: Engine): void {
  const noted = createPrivateReads(engine);
  async function judge(request: FastifyRequest): Promise<void> {
    const { person } = request;
    const named = readNamed(request);
    for (const workspace of named.workspaces) await requireWorkspace(engine, person, workspace);
    const session = await requireNamedSession(engine, person, named);
    if (named.other !== null) await requireNamedSession(engine, person, { ...NOTHING_NAMED, session: named.other });
    if (session === null) return;
    const role = getOperationRole(request);
    if (role === 'owner' && !canWrite(person, session)) throw forbidden('owner', person.role);
    if (opensWorkspace(request)) await requireWorkspace(engine, person, session.workspace_path);
    noted(person, session);
  }
  app.addHook('preHandler', (request, _reply, done) => {
    endHook(engine.people.isRequired() && request.authorised ? judge(request) : undefined, done);
  });
}

/** Whether the request opens a session in the workspace of the session that it names: a fork, unless it has none. */
function opensWorkspace({ routeOptions, body }: FastifyRequest): boolean {
  return routeOptions.url === '/sessions/:session_id/fork' && asFields(body).workspace !== 'none';
}

/**
 * For restricted callers an unknown id ends here too, so that the order in which a handler checks its input does not
 * distinguish a private session from it.
 */
async function requireNamedSession(
  engine: Engine,
  person: Person,
  { session, confirmation }: Named,
): Promise<SessionRecord | null> {
  const { sessions, confirmations } = engine.store;
  if (confirmation !== null) {
    const asked = await confirmations.record(confirmation);
    const record = asked === null ? null : await sessions.record(asked.root_session_id);
    if (record !== null && canSee(person, record)) return record;
    if (person.role === 'admin') return null;
    throw notFound('confirmation', confirmation);
  }
  if (session === null) return null;
  const record = await sessions.record(session);
  if (record !== null && canSee(person, record)) return record;
  if (person.role === 'admin') return null;
  throw notFound('session', session);
}

/** Throws `workspace_not_allowed` for a workspace outside the folders of the token. An unknown folder is left to the handler. */
export async function requireWorkspace(engine: Engine, { workspaces }: Person, given: string): Promise<void> {
  if (workspaces === null) return;
  const real = await engine.workspaces.realDirectory(given);
  if (real === null) return;
  const roots = await Promise.all(workspaces.map(async (one) => (await engine.workspaces.realDirectory(one)) ?? one));
  if (isBelow(real, roots)) return;
  throw new AppError('workspace_not_allowed', `the token of this request may not use ${given}; an admin can widen it`);
}

const MINUTE_MS = 60_000;

/** Records a token that was refused: once a minute for an address, so that guesses cannot fill the audit. */
export function createRefusalNotes(engine: Engine): (request: FastifyRequest) => void {
  const last = new Map<string, number>();
  return ({ ip, method, routeOptions }) => {
    const now = engine.clock.now();
    if (now - (last.get(ip) ?? Number.NEGATIVE_INFINITY) < MINUTE_MS) return;
    if (last.size >= MAX_NOTED) last.clear();
    last.set(ip, now);
    const details = { address: ip, method, path: routeOptions.url ?? null };
    recordAudit(engine, null, 'login.refused', { subject: null, details }).catch((err: unknown) => {
      engine.log.warn({ err }, 'an entry of the audit could not be stored');
    });
  };
}

const HOUR_MS = 3_600_000;
const MAX_NOTED = 10_000;

/** Records that an admin read a private session of another owner: once an hour, since a page asks every few seconds. */
function createPrivateReads(engine: Engine): (person: Person, session: SessionRecord) => void {
  const last = new Map<string, number>();
  return (person, { root_session_id: subject, owner, share }) => {
    if (share !== 'private' || owner === null || owner === person.id || person.role !== 'admin') return;
    const key = `${person.id} ${subject}`;
    const now = engine.clock.now();
    if (now - (last.get(key) ?? Number.NEGATIVE_INFINITY) < HOUR_MS) return;
    if (last.size >= MAX_NOTED) last.clear();
    last.set(key, now);
    recordAudit(engine, person, 'session.private_read', { subject }).catch((err: unknown) => {
      engine.log.warn({ err, session_id: subject }, 'an entry of the audit could not be stored');
    });
  };
}
