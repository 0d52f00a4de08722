// Entries of the audit, stored with what they report (23 §4).
import type { Write } from '#core/ports/journal-writer.ts';
import type { AuditAction, Person } from '#protocol/people/person.ts';
import type { Runtime } from './engine.ts';

/** What was done, and to what. */
export interface AuditSubject {
  /** A session, a token, a worker. */
  readonly subject: string | null;
  readonly details?: Readonly<Record<string, unknown>>;
}

const DAY_MS = 86_400_000;

/** Nothing on a server that requires no token: one person needs no audit. */
export function auditWrites(
  engine: Pick<Runtime, 'ids' | 'clock' | 'config' | 'people'>,
  actor: Pick<Person, 'id'> | null,
  action: AuditAction,
  about: AuditSubject,
): readonly Write[] {
  if (!engine.people.isRequired()) return [];
  return [auditWrite(engine, actor, action, about)];
}

/** The entry, also where no token is required yet: the first token is made there. */
export function auditWrite(
  { ids, clock, config }: Pick<Runtime, 'ids' | 'clock' | 'config'>,
  actor: Pick<Person, 'id'> | null,
  action: AuditAction,
  { subject, details = {} }: AuditSubject,
): Write {
  const at = clock.now();
  const { audit_days } = config.retention;
  const drop_before = audit_days === null ? null : at - audit_days * DAY_MS;
  const entry = { id: ids.next(), at, actor: actor?.id ?? null, action, subject, details };
  return { kind: 'audit.insert', entry, drop_before };
}
