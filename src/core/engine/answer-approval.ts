// Stores the answer to an approval: the first answer wins, and it may also become a rule for later calls (05 §3.3, 09 §6.2).

import type { Answer, Scope } from '#protocol/confirmation.ts';
import { AppError, validationError } from '#protocol/errors.ts';
import type { ConfirmationId } from '#protocol/ids.ts';
import { JournalConflict } from '#protocol/journal-batch.ts';
import { NAMELESS_ADMIN, type Person, type PersonRef } from '#protocol/people/person.ts';
import { canApprove } from '#protocol/people/rights.ts';
import type { ConfirmationRow } from '../ports/journal-writer.ts';
import { storeAnswer } from './approval/approve-call.ts';
import type { Engine, Runtime, Storage, WorkspaceAccess } from './state/engine.ts';
import { claim, type OpenApproval } from './state/memory.ts';

type Input = Readonly<Record<string, unknown>>;

export interface ConfirmationAnswer {
  readonly decision: 'approve' | 'reject' | 'modify';
  readonly scope: Scope;
  /** At most 500 characters; shown to the model on a reject. */
  readonly reason: string | null;
  readonly modified_input: Input | null;
  /** The approver's own definition of a worker that is to be created. */
  readonly modified_yaml?: string | null;
}

export interface ConfirmationReply {
  readonly confirmation_request_id: ConfirmationId;
  readonly decision: ConfirmationAnswer['decision'];
  /** The effective scope. */
  readonly scope: Scope;
  readonly applied: boolean;
  /** The named token whose answer counts. */
  readonly answered_by?: PersonRef;
}

/**
 * Stores the answer to an approval; the first one wins (05 §3.3).
 * Throws `not_found`, `validation_error`, `invalid_modified_input`, `confirmation_already_resolved`.
 */
export async function answerConfirmation(
  engine: Engine,
  id: string,
  given: ConfirmationAnswer,
  actor: Person = NAMELESS_ADMIN,
): Promise<ConfirmationReply> {
  const row = await engine.store.confirmations.record(id as ConfirmationId);
  if (!row) throw new AppError('not_found', `no confirmation with id ${id}`, { resource: 'confirmation' });
  await requireApprover(engine, row, actor);
  const { modified_yaml: yaml = null } = given;
  if (yaml !== null && row.rule !== 'worker.create')
    throw validationError([{ path: 'modified_yaml', message: 'belongs to the creation of a worker' }]);
  const answer = yaml === null ? given : { ...given, modified_input: { yaml } };
  checkForm(row, answer);
  let checked = answer.decision !== 'modify';
  for (;;) {
    const open = engine.approvals.get(row.id);
    if (!open) return repeatAnswer(engine, row, answer);
    if (open.claim !== null) await open.claim;
    else if (checked) return applyAnswer(engine, { row, open, actor }, answer);
    else {
      await checkEdit(open, answer);
      checked = true;
    }
  }
}

async function checkEdit(open: OpenApproval, answer: ConfirmationAnswer): Promise<void> {
  const issues = await open.recheck(answer.modified_input ?? {});
  const [first] = issues;
  if (first === undefined) return;
  const field = typeof answer.modified_input?.yaml === 'string' ? 'modified_yaml' : 'modified_input';
  const at = [field, first.path].filter((name) => name !== '').join('.');
  throw new AppError('invalid_modified_input', `${at}: ${first.message}`, { issues });
}

/** An open approval, and who answers it. */
interface Asked {
  readonly row: ConfirmationRow;
  readonly open: OpenApproval;
  readonly actor: Person;
}

/** Throws `forbidden` for a member who may not approve calls of its own sessions. */
async function requireApprover(
  { config, store }: Pick<Engine, 'config' | 'store'>,
  { root_session_id }: ConfirmationRow,
  actor: Person,
): Promise<void> {
  const session = await store.sessions.record(root_session_id);
  if (session === null || canApprove(actor, session, config.approvals.own)) return;
  throw new AppError('forbidden', 'approvals.own is off: another member or an admin answers calls of your sessions', {
    required_role: 'owner',
  });
}

async function applyAnswer(
  engine: Runtime & Storage & WorkspaceAccess,
  asked: Asked,
  answer: ConfirmationAnswer,
): Promise<ConfirmationReply> {
  const { row, open, actor } = asked;
  try {
    const toAnswer = await claim(open, () => storeScoped(engine, asked, answer));
    open.settle(toAnswer);
    return {
      confirmation_request_id: row.id,
      decision: answer.decision,
      scope: toAnswer.scope ?? 'once',
      applied: true,
      ...(actor.id !== null && { answered_by: { id: actor.id, name: actor.name } }),
    };
  } catch (error) {
    open.releaseClaim();
    if (!(error instanceof JournalConflict)) throw error;
    return repeatAnswer(engine, row, answer);
  }
}

function checkForm(row: ConfirmationRow, answer: ConfirmationAnswer): void {
  if (!row.request.allowed_scopes.includes(answer.scope))
    throw validationError([
      { path: 'scope', message: `must be one of ${row.request.allowed_scopes.join(', ')} for this request` },
    ]);
  if (answer.decision !== 'modify') return;
  if (answer.scope !== 'once')
    throw validationError([{ path: 'scope', message: 'must be "once" with decision "modify"' }]);
  if (!row.request.modifiable) throw new AppError('not_modifiable', 'this request cannot be modified');
  if (answer.modified_input === null)
    throw validationError([{ path: 'modified_input', message: 'is required with decision "modify"' }]);
}

/** An answer after the first: the same decision is a no-op, another one a conflict. */
async function repeatAnswer(
  engine: Pick<Storage, 'store'>,
  row: ConfirmationRow,
  answer: ConfirmationAnswer,
): Promise<ConfirmationReply> {
  const known = await engine.store.confirmations.view(row.id);
  const { answered_by } = known ?? {};
  if (known?.decision === answer.decision)
    return {
      confirmation_request_id: row.id,
      decision: answer.decision,
      scope: known.scope ?? 'once',
      applied: false,
      ...(answered_by !== undefined && { answered_by }),
    };
  throw new AppError(
    'confirmation_already_resolved',
    `this request was already answered: ${known?.decision ?? 'now'}${answered_by === undefined ? '' : ` by ${answered_by.name}`}`,
    {
      ...(answered_by !== undefined && { answered_by }),
      decision: known?.decision ?? null,
      resolved_at: known?.resolved_at ?? null,
    },
  );
}

/**
 * The answer as it is stored, with its effective scope. Only a planner's call can write `always` to trust.yaml; a scope
 * that cannot be remembered acts as `once` (09 §6.2). The file changes after its answer is stored: a rejected answer
 * must leave no rule.
 */
async function storeScoped(
  engine: Runtime & Storage & WorkspaceAccess,
  { row, open, actor }: Asked,
  answer: ConfirmationAnswer,
): Promise<Answer> {
  const { decision, reason, modified_input } = answer;
  const toAnswer = (scope: Scope): Answer => {
    if (decision !== 'modify') return { decision, scope, reason, modified_input: null };
    return { decision, scope, reason, modified_input };
  };
  const store = (scope: Scope) =>
    storeAnswer(engine, row, { parent: open.request_event, answer: toAnswer(scope), by: 'user', actor });
  const session = await engine.store.sessions.record(row.session_id);
  if (answer.scope !== 'always' || row.request.is_worker || session === null) {
    if (answer.scope === 'always')
      engine.log.info(
        { session_id: row.session_id, turn_id: row.turn_id, confirmation_request_id: row.id },
        'an answer to a worker is not remembered beyond this call',
      );
    const scope = answer.scope === 'identical' && decision === 'approve' ? 'identical' : 'once';
    await store(scope);
    return toAnswer(scope);
  }
  const list = decision === 'approve' ? 'always_allow' : 'always_deny';
  const change = { list, tool: row.tool_name } as const;
  const kept = await engine.workspaces.persistTrust(session.workspace_path, change, (can) =>
    store(can ? 'always' : 'once'),
  );
  if (kept) return toAnswer('always');
  engine.log.warn(
    { session_id: row.session_id, turn_id: row.turn_id, confirmation_request_id: row.id, list },
    'trust.yaml was not changed; the answer holds once',
  );
  return toAnswer('once');
}
