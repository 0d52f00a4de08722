// Tokens made at run time, and the audit of what was done with the rights of tokens (23 §2, §4).
import { isoTime } from '#protocol/clock.ts';
import { AppError } from '#protocol/errors.ts';
import { JournalConflict } from '#protocol/journal-batch.ts';
import { fromPusd } from '#protocol/money.ts';
import type { AuditAction, NewToken, Person, Token, TokenRecord } from '#protocol/people/person.ts';
import type { Write } from '../ports/journal-writer.ts';
import { auditWrite, auditWrites } from './state/audit-writes.ts';
import type { Runtime, Storage } from './state/engine.ts';
import { hashToken, type KnownToken } from './state/people.ts';

export { type Caller, hashToken, type People } from './state/people.ts';

type PeopleEngine = Runtime & Storage;

/** The row of a new token with its entry in the audit; the secret is in the digest alone. */
export function makeTokenWrites(
  runtime: Pick<Runtime, 'ids' | 'clock' | 'config'>,
  order: NewToken,
  made: Pick<TokenRecord, 'token_sha256' | 'created_by'>,
): { readonly token: TokenRecord; readonly writes: readonly Write[] } {
  const token = buildTokenRecord(runtime, order, made);
  const { id, name, role, daily_usd, monthly_usd } = token;
  const about = { subject: name, details: { id, role, daily_usd, monthly_usd } };
  const entry = auditWrite(runtime, { id: made.created_by }, 'token.created', about);
  return { token, writes: [{ kind: 'token.insert', token }, entry] };
}

function buildTokenRecord(
  { ids, clock }: Pick<Runtime, 'ids' | 'clock'>,
  { name, role, daily_usd, monthly_usd, workspaces, expires_at }: NewToken,
  { token_sha256, created_by }: Pick<TokenRecord, 'token_sha256' | 'created_by'>,
): TokenRecord {
  return {
    id: ids.next(),
    name,
    token_sha256,
    role,
    daily_usd,
    monthly_usd,
    workspaces,
    expires_at: expires_at === null ? null : Date.parse(expires_at),
    created_by,
    created_at: clock.now(),
    revoked_at: null,
  };
}

/** Throws `token_name_taken` for a name that a token, a revoked one too, or a key of the gateway has. */
export async function createToken(
  engine: PeopleEngine,
  actor: Person,
  body: NewToken,
  secret: string,
): Promise<Token & { readonly secret: string }> {
  await engine.people.refresh();
  if (engine.people.findId(body.name) !== null) throw nameTakenError(body.name);
  const token_sha256 = hashToken(secret).toString('hex');
  const { token, writes } = makeTokenWrites(engine, body, { token_sha256, created_by: actor.id });
  try {
    await engine.journal.commit({ writes, emit: [] });
  } catch (error) {
    if (error instanceof JournalConflict && error.code === 'name_taken') throw nameTakenError(body.name);
    throw error;
  }
  await engine.people.refresh();
  return {
    ...(await describeToken(engine, requireToken(engine, token.id), await engine.store.people.openSessions())),
    secret,
  };
}

function nameTakenError(name: string): AppError {
  return new AppError('token_name_taken', `the name ${name} is or was a token's or a gateway key's; choose another`);
}

/** Every token of the file, and every token that was ever made, by name. */
export async function listTokens(engine: PeopleEngine): Promise<readonly Token[]> {
  await engine.people.refresh();
  const open = await engine.store.people.openSessions();
  const known = [...engine.people.list()].sort((a, b) => (a.name < b.name ? -1 : 1));
  return Promise.all(known.map((token) => describeToken(engine, token, open)));
}

/** Throws `not_found`, `token_in_file`, `last_admin`. Revoking twice changes nothing. */
export async function revokeToken(engine: PeopleEngine, actor: Person, nameOrId: string): Promise<Token> {
  await engine.people.refresh();
  const token = requireToken(engine, nameOrId);
  if (token.origin === 'file')
    throw new AppError('token_in_file', `${token.name} is a token of the configuration; remove it from server.tokens`);
  if (token.revoked_at === null) await storeRevocation(engine, actor, token);
  return describeToken(engine, requireToken(engine, token.id), await engine.store.people.openSessions());
}

async function storeRevocation(engine: PeopleEngine, actor: Person, { id, name }: KnownToken): Promise<void> {
  const at = engine.clock.now();
  const { auth_tokens } = engine.config.server;
  const isUsable = ({ expires_at }: KnownToken) => expires_at === null || expires_at > at;
  const ofFile = engine.people.list().filter((one) => one.origin === 'file' && one.role === 'admin' && isUsable(one));
  const other_admins = auth_tokens.length + ofFile.length;
  try {
    await engine.journal.commit({
      writes: [
        { kind: 'token.revoke', id, at, other_admins },
        ...auditWrites(engine, actor, 'token.revoked', { subject: name, details: { id } }),
      ],
      emit: [],
    });
  } catch (error) {
    if (!(error instanceof JournalConflict && error.code === 'last_admin')) throw error;
    throw new AppError('last_admin', `${name} is the last token of an admin; make another one first`);
  }
  await engine.people.refresh();
}

function requireToken({ people }: Pick<Runtime, 'people'>, nameOrId: string): KnownToken {
  const token = people.find(nameOrId);
  if (token === null) throw new AppError('not_found', `no token with id ${nameOrId}`, { resource: 'token' });
  return token;
}

/** A token as callers see it: without its digest. */
export async function describeToken(
  { store, clock }: Pick<PeopleEngine, 'store' | 'clock'>,
  token: KnownToken,
  open: ReadonlyMap<string, number>,
): Promise<Token> {
  const now = new Date(clock.now());
  const [today, month] = await Promise.all([
    store.spend.sumOwner(token.id, new Date(now).setUTCHours(0, 0, 0, 0)),
    store.spend.sumOwner(token.id, Date.UTC(now.getUTCFullYear(), now.getUTCMonth(), 1)),
  ]);
  const { id, name, role, origin, daily_usd, monthly_usd, workspaces, expires_at, created_at, revoked_at } = token;
  return {
    id,
    name,
    role,
    origin,
    daily_usd,
    monthly_usd,
    spent_today_usd: fromPusd(today),
    spent_this_month_usd: fromPusd(month),
    workspaces: workspaces === null ? null : [...workspaces],
    expires_at: expires_at === null ? null : isoTime(expires_at),
    created_at: created_at === null ? null : isoTime(created_at),
    revoked_at: revoked_at === null ? null : isoTime(revoked_at),
    open_sessions: open.get(id) ?? 0,
  };
}

/** Stores an entry of something that changes no other row. */
export async function recordAudit(
  engine: PeopleEngine,
  actor: Person | null,
  action: AuditAction,
  about: { readonly subject: string | null; readonly details?: Readonly<Record<string, unknown>> },
): Promise<void> {
  const writes = auditWrites(engine, actor, action, about);
  if (writes.length > 0) await engine.journal.commit({ writes, emit: [] });
}
