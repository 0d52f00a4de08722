// Requests the approval of one call and waits for its answer: one id, one row (09 §5, §6).
import { type ApprovalDecision, decideApproval, findToolRule, resolveToolMode } from '#core/policy/tools/approval.ts';
import type { ConfirmationRow } from '#core/ports/journal-writer.ts';
import type { SharedFile } from '#core/ports/tool-port.ts';
import type { Answer } from '#protocol/confirmation.ts';
import type { Issue } from '#protocol/errors.ts';
import { draft, type EventDraft } from '#protocol/event.ts';
import type { EventId, SessionId } from '#protocol/ids.ts';
import type { ToolUseBlock } from '#protocol/message.ts';
import { NAMELESS_ADMIN, type Person } from '#protocol/people/person.ts';
import type { ToolDefinition, ToolErrorClass } from '#protocol/tool.ts';
import { type BillAnswer, BillEditSchema, DelegationBillSchema } from '#protocol/what-if/cost-ahead.ts';
import { auditWrites } from '../state/audit-writes.ts';
import type { ApprovalEngine, Approvals, Runtime, Storage, WorkspaceAccess } from '../state/engine.ts';
import { claim, type OpenApproval } from '../state/memory.ts';
import type { TurnPlan, TurnProgress } from '../state/turn-run.ts';
import { describeCall, describeSharing, type Subject } from './approval-subject.ts';

function draftRequested(run: Pick<TurnProgress, 'call_event_id'>, row: ConfirmationRow): EventDraft {
  return draft({
    type: 'tool.confirmation_requested',
    session_id: row.session_id,
    turn_id: row.turn_id,
    parent: run.call_event_id,
    payload: row.request,
  });
}

function draftResolved(
  row: ConfirmationRow,
  parent: EventId | number | null,
  answer: Pick<Answer, 'decision' | 'scope'>,
  by: 'user' | 'policy',
): EventDraft {
  return draft({
    type: 'tool.confirmation_resolved',
    session_id: row.session_id,
    turn_id: row.turn_id,
    parent,
    ...(by === 'policy' && { actor: 'system' as const }),
    payload: {
      tool_use_id: row.tool_use_id,
      confirmation_request_id: row.id,
      decision: answer.decision,
      scope: answer.scope,
      resolved_by: by,
    },
  });
}

/** The answer to a bill; null for one that was closed with its turn, and is requested again when that resumes. */
export function toBillAnswer({
  decision,
  reason,
  modified_input,
}: Pick<Answer, 'decision' | 'reason' | 'modified_input'>): BillAnswer | null {
  if (decision === 'cancelled') return null;
  return { decision, reason, modified_input: modified_input && BillEditSchema.parse(modified_input) };
}

/** The bill with the answer to it, in the transaction of the answer: after a restart it is what was decided (21 §1). */
function draftPriced(
  row: ConfirmationRow,
  parent: number,
  given: Pick<Answer, 'decision' | 'reason' | 'modified_input'>,
): EventDraft[] {
  const { kind, tool_use_ids, payload } = row.request;
  const answer = kind === 'delegations' ? toBillAnswer(given) : null;
  if (answer === null) return [];
  const bill = DelegationBillSchema.parse({ ...payload, tool_use_ids });
  return [
    draft({
      type: 'delegate.priced',
      session_id: row.session_id,
      turn_id: row.turn_id,
      parent,
      payload: { ...bill, answer },
    }),
  ];
}

type Input = Readonly<Record<string, unknown>>;
/** Checks an edited input as the original was checked. */
type Recheck = (input: Input) => Promise<readonly Issue[]>;

export type Approval =
  /** `input` is set when the approver edited it. */
  | { readonly ok: true; readonly input: Input | null }
  | { readonly ok: false; readonly refusal: { readonly error_class: ToolErrorClass; readonly text: string } };

const ALLOWED: Approval = { ok: true, input: null };

/** Decides whether a call may run. Where policy requires it, requests an approval: of each file that the call hands on, then of the call (09 §5.2, 13 §5). */
export async function approveCall(
  engine: ApprovalEngine,
  run: TurnPlan & TurnProgress,
  call: ToolUseBlock,
  about: {
    readonly definition: ToolDefinition;
    readonly shared: readonly SharedFile[];
    /** The preview that an approval shows in place of the input. */
    readonly payload: Input | null;
    readonly recheck: Recheck;
  },
): Promise<Approval> {
  for (const file of about.shared) {
    const approval = await approveSubject(engine, run, describeSharing(engine, run, call, file), async () => []);
    if (!approval.ok) return approval;
  }
  return approveSubject(engine, run, await describeCall(engine, run, call, about), about.recheck);
}

/** Whether the files of an edited input may be handed on at all. They need no second approval. */
export async function canShare(
  engine: Runtime & Storage & WorkspaceAccess,
  run: TurnPlan,
  call: ToolUseBlock,
  shared: readonly SharedFile[],
) {
  for (const file of shared)
    if ((await decideSubject(engine, run, describeSharing(engine, run, call, file))) === 'deny_policy') return false;
  return true;
}

async function decideSubject(
  engine: Runtime & Storage & WorkspaceAccess,
  run: Pick<TurnPlan, 'session'>,
  { covered, keyHash }: Subject,
): Promise<ApprovalDecision> {
  const { session } = run;
  return decideApproval({
    inEffectiveSet: true,
    rule: findToolRule(session.worker_definition?.definition.tool_rules ?? {}, covered),
    mode: resolveToolMode(engine.config.tool_confirmation, covered),
    trust: await engine.workspaces.readTrust(session.workspace_path),
    toolName: covered.name,
    approvalMode: session.approval_mode,
    granted: await engine.store.confirmations.isGranted(session.root_session_id, keyHash),
  });
}

async function approveSubject(
  engine: ApprovalEngine,
  run: TurnPlan & TurnProgress,
  subject: Subject,
  recheck: Recheck,
): Promise<Approval> {
  const decision = await decideSubject(engine, run, subject);
  switch (decision) {
    case 'allow':
      return ALLOWED;
    case 'not_found':
      return denyCall('not_found', `Tool '${subject.covered.name}' is not available in this session.`);
    case 'deny_policy':
      return denyCall('user_denied', 'Denied by policy.');
    case 'approve_all':
    case 'deny_strict': {
      const yes = decision === 'approve_all';
      await answerByPolicy(engine, run, subject.row(), { decision: yes ? 'approve' : 'reject', reason: null });
      if (yes) return ALLOWED;
      return denyCall('user_denied', `Strict mode: tool '${subject.covered.name}' not pre-approved`);
    }
    case 'ask':
      return toApproval(engine, await requestAnswer(engine, run, subject.row(), recheck));
  }
}

function denyCall(error_class: ToolErrorClass, text: string): Approval {
  return { ok: false, refusal: { error_class, text } };
}

/** `approve_all` and `strict` decide at once, and leave the same records as an answer (09 §6.3). */
export async function answerByPolicy(
  engine: Runtime & Storage,
  run: TurnProgress,
  row: ConfirmationRow,
  { decision, reason }: { readonly decision: 'approve' | 'reject'; readonly reason: string | null },
) {
  await engine.journal.commit({
    writes: [
      { kind: 'confirmation.insert', confirmation: row },
      {
        kind: 'confirmation.resolve',
        id: row.id,
        decision,
        scope: 'once',
        reason,
        modified: null,
        resolved_by: 'policy',
        at: engine.clock.now(),
      },
    ],
    emit: [
      draftRequested(run, row),
      draftResolved(row, 0, { decision, scope: 'once' }, 'policy'),
      ...draftPriced(row, 1, { decision, reason, modified_input: null }),
    ],
  });
}

/** Stores the request and waits for its answer; the clocks of the worker and of those above it pause meanwhile. */
export async function requestAnswer(
  engine: Runtime & Storage & Approvals,
  run: TurnPlan & TurnProgress,
  row: ConfirmationRow,
  recheck: Recheck,
): Promise<Answer> {
  for (const clock of run.clocks) clock.pause();
  try {
    const events = await engine.journal.commit({
      writes: [{ kind: 'confirmation.insert', confirmation: row }],
      emit: [draftRequested(run, row)],
    });
    return await awaitAnswer(engine, run, row, { requestEvent: events[0]!.id, recheck });
  } finally {
    for (const clock of run.clocks) clock.resume();
  }
}

/** Resolves with the first of: the answer, the deadline, the turn's cancellation or conclusion. */
function awaitAnswer(
  engine: Runtime & Storage & Approvals,
  run: Pick<TurnPlan, 'signal' | 'conclusion'>,
  row: ConfirmationRow,
  { requestEvent, recheck }: { readonly requestEvent: EventId; readonly recheck: Recheck },
): Promise<Answer> {
  return new Promise((resolve, reject) => {
    let due: 'timeout' | 'cancelled' | null = null;
    const closeAs = (decision: 'timeout' | 'cancelled') => {
      due = decision;
      void closeExpired(engine, row, decision);
    };
    const cancelApproval = () => closeAs('cancelled');
    const signals = [run.signal, run.conclusion.signal];
    const timer = engine.clock.after(row.expires_at - row.requested_at, () => closeAs('timeout'));
    const stopWaiting = () => {
      timer.cancel();
      for (const signal of signals) signal.removeEventListener('abort', cancelApproval);
      engine.approvals.delete(row.id);
    };
    const open: OpenApproval = {
      claim: null,
      request_event: requestEvent,
      recheck,
      settle: (answer) => {
        stopWaiting();
        resolve(answer);
      },
      fail: (error) => {
        stopWaiting();
        reject(error);
      },
      interrupt: cancelApproval,
      releaseClaim: () => {
        if (due !== null) closeAs(due);
      },
    };
    engine.approvals.set(row.id, open);
    if (signals.some((signal) => signal.aborted) || engine.draining.value) cancelApproval();
    else for (const signal of signals) signal.addEventListener('abort', cancelApproval, { once: true });
  });
}

function toApproval(engine: Pick<Runtime, 'config'>, answer: Answer): Approval {
  switch (answer.decision) {
    case 'approve':
      return ALLOWED;
    case 'modify':
      return { ok: true, input: answer.modified_input };
    case 'reject':
      return denyCall(
        'user_denied',
        answer.reason ? `User denied this operation. Reason: ${answer.reason}` : 'User denied this operation.',
      );
    case 'timeout':
      return denyCall(
        'confirmation_timeout',
        `Confirmation timed out after ${engine.config.tool_confirmation.timeout_seconds}s; the tool did not run.`,
      );
    case 'cancelled':
      return denyCall('cancelled', 'Tool call cancelled.');
  }
}

/** Closes an approval without an answer, at its deadline or its turn's end. An answer that is being stored right now wins. */
async function closeExpired(
  engine: Runtime & Storage & Approvals,
  row: ConfirmationRow,
  decision: 'timeout' | 'cancelled',
): Promise<void> {
  const open = engine.approvals.get(row.id);
  if (!open || open.claim !== null) return;
  const answer: Answer = { decision, scope: null, reason: null, modified_input: null };
  await claim(open, () => storeAnswer(engine, row, { parent: open.request_event, answer, by: 'policy' })).then(
    () => open.settle(answer),
    (error: unknown) => open.fail(error),
  );
}

/** An answer with the event of its request and who gave it. */
interface StoredAnswer {
  readonly parent: EventId;
  readonly answer: Answer;
  readonly by: 'user' | 'policy';
  readonly actor?: Person;
}

function withAnsweredBy<E extends ReturnType<typeof draftResolved>>(event: E, { id, name }: Person): E {
  if (id === null) return event;
  return { ...event, payload: { ...event.payload, answered_by: { id, name } } };
}

/** The conditional update and its event; a second answer fails as `confirmation_resolved`. */
export async function storeAnswer(
  engine: Runtime & Storage,
  row: ConfirmationRow,
  { parent, answer, by, actor = NAMELESS_ADMIN }: StoredAnswer,
): Promise<void> {
  const { decision, scope } = answer;
  const noted =
    by === 'policy'
      ? []
      : auditWrites(engine, actor, 'approval.answered', {
          subject: row.session_id,
          details: { confirmation_request_id: row.id, tool: row.tool_name, decision, scope },
        });
  await engine.journal.commit({
    writes: [
      ...noted,
      {
        kind: 'confirmation.resolve',
        id: row.id,
        decision: answer.decision,
        scope: answer.scope,
        reason: answer.reason,
        modified: answer.modified_input,
        resolved_by: by,
        answered_by: actor.id,
        at: engine.clock.now(),
      },
    ],
    emit: [withAnsweredBy(draftResolved(row, parent, answer, by), actor), ...draftPriced(row, 0, answer)],
  });
}

// Open approvals whose turn no longer waits: each is resolved as cancelled, with its event (09 §6.3, §9.4).

/** @param root only the approvals of this tree that `match` picks; absent = of every turn, as recovery does once */
export async function closeOpenApprovals(
  engine: Runtime & Storage,
  root?: SessionId,
  match: (row: ConfirmationRow) => boolean = () => true,
): Promise<void> {
  for (const row of await engine.store.confirmations.allOpen(root)) {
    if (!match(row)) continue;
    const requests = await engine.store.events.listOfTurn(row.turn_id, ['tool.confirmation_requested']);
    const asked = requests.find((e) => e.payload.confirmation_request_id === row.id);
    await engine.journal.commit({
      writes: [
        {
          kind: 'confirmation.resolve',
          id: row.id,
          decision: 'cancelled',
          scope: null,
          reason: null,
          modified: null,
          resolved_by: 'policy',
          at: engine.clock.now(),
        },
      ],
      emit: [draftResolved(row, asked?.id ?? null, { decision: 'cancelled', scope: null }, 'policy')],
    });
  }
}
