// A person's answer to a prompt: the first one wins, and what it is remembered for (05 §3.3, 09 §6.2).
import type { Answer, Scope } from '../domain/confirmation.ts';
import { AppError, validationError } from '../kernel/errors.ts';
import type { ConfirmationId } from '../kernel/ids.ts';
import { type ConfirmationRow, JournalConflict } from '../ports/journal.ts';
import { storeAnswer } from './confirm.ts';
import type { Engine } from './context.ts';

type Input = Readonly<Record<string, unknown>>;

export interface ConfirmationAnswer {
  readonly decision: 'approve' | 'reject' | 'modify';
  readonly scope: Scope;
  /** At most 500 characters; shown to the model on a reject. */
  readonly reason: string | null;
  readonly modified_input: Input | null;
}

export interface ConfirmationReply {
  readonly confirmation_request_id: ConfirmationId;
  readonly decision: ConfirmationAnswer['decision'];
  /** The effective scope. */
  readonly scope: Scope;
  readonly applied: boolean;
}

/**
 * A person's answer; the first one wins (05 §3.3).
 * Throws `not_found`, `validation_error`, `invalid_modified_input`, `confirmation_already_resolved`.
 */
export async function answerConfirmation(
  engine: Engine,
  id: string,
  answer: ConfirmationAnswer,
): Promise<ConfirmationReply> {
  const row = await engine.store.confirmations.record(id as ConfirmationId);
  if (!row) throw new AppError('not_found', `no confirmation with id ${id}`, { resource: 'confirmation' });
  checkForm(row, answer);
  const prompt = engine.prompts.get(row.id);
  if (!prompt || prompt.claimed) return repeated(engine, row, answer);
  if (answer.decision === 'modify') {
    const issues = await prompt.recheck(answer.modified_input ?? {});
    const [first] = issues;
    if (first !== undefined) {
      const at = ['modified_input', ...(first.path === '' ? [] : [first.path])].join('.');
      throw new AppError('invalid_modified_input', `${at}: ${first.message}`, { issues });
    }
    if (prompt.claimed) return repeated(engine, row, answer);
  }
  prompt.claimed = true;
  try {
    const scope = await effectiveScope(engine, row, answer);
    const settled: Answer = {
      decision: answer.decision,
      scope,
      reason: answer.reason,
      modified_input: answer.decision === 'modify' ? answer.modified_input : null,
    };
    await storeAnswer(engine, row, prompt.request_event, settled, 'user');
    prompt.settle(settled);
    return { confirmation_request_id: row.id, decision: answer.decision, scope, applied: true };
  } catch (error) {
    prompt.unclaim();
    if (!(error instanceof JournalConflict)) throw error;
    return repeated(engine, row, answer);
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
async function repeated(engine: Engine, row: ConfirmationRow, answer: ConfirmationAnswer): Promise<ConfirmationReply> {
  const known = await engine.store.confirmations.view(row.id);
  if (known?.decision === answer.decision)
    return {
      confirmation_request_id: row.id,
      decision: answer.decision,
      scope: known.scope ?? 'once',
      applied: false,
    };
  throw new AppError(
    'confirmation_already_resolved',
    `this request was already answered: ${known?.decision ?? 'now'}`,
    {
      decision: known?.decision ?? null,
      resolved_at: known?.resolved_at ?? null,
    },
  );
}

/** `always` is written to trust.yaml for a planner's prompt only; whatever cannot be remembered acts as `once` (09 §6.2). */
async function effectiveScope(engine: Engine, row: ConfirmationRow, answer: ConfirmationAnswer): Promise<Scope> {
  if (answer.scope === 'identical') return answer.decision === 'approve' ? 'identical' : 'once';
  if (answer.scope !== 'always') return 'once';
  if (row.request.is_worker) {
    engine.log.info({ confirmation_request_id: row.id }, 'an answer to a worker is not remembered beyond this call');
    return 'once';
  }
  const session = await engine.store.sessions.record(row.session_id);
  const list = answer.decision === 'approve' ? 'always_allow' : 'always_deny';
  const kept = session !== null && (await engine.workspaces.persistTrust(session.workspace_path, list, row.tool_name));
  if (!kept)
    engine.log.warn({ confirmation_request_id: row.id, list }, 'trust.yaml was not changed; the answer holds once');
  return kept ? 'always' : 'once';
}
