// Builds the wire object of a session from its record and facts of other tables (01 §7.1).
import { isoTime } from '#protocol/clock.ts';
import { fromPusd, fromPusdOrNull, type Pusd, ZERO_PUSD } from '#protocol/money.ts';
import { toPersonRef } from '#protocol/people/person.ts';
import type { BudgetView, Session, SessionRecord, SessionStatus, Waiting } from '#protocol/session.ts';

// A session's title: the first line of its first user message, a worker's of its task (01 §7.1).

const MAX_CODE_POINTS = 80;

/** The first line that is not blank; of a longer one than 80 code points the first 79 and `…`. Null when there is none. */
export function firstLine(text: string): string | null {
  const line = text.trimStart().split(/\r?\n/, 1)[0]?.trimEnd() ?? '';
  if (line === '') return null;
  // A line may be megabytes long: only the part that can count is read.
  const points = Array.from(line.slice(0, 2 * MAX_CODE_POINTS + 2));
  if (points.length <= MAX_CODE_POINTS) return line;
  return `${points
    .slice(0, MAX_CODE_POINTS - 1)
    .join('')
    .trimEnd()}…`;
}

/** Money that calls cost, and whether one of them had no price or was simulated. */
export interface Spent {
  readonly cost_pusd: Pusd;
  readonly unpriced: boolean;
  readonly simulated: boolean;
}

export interface SessionFacts {
  /** The name of the token that owns it, where it has a row. */
  readonly owner_name: string | null;
  /** The turn that has not ended. */
  readonly open_turn: {
    readonly id: NonNullable<Session['current_turn_id']>;
    readonly status: NonNullable<Session['current_turn_status']>;
  } | null;
  /** Its own calls. */
  readonly own: Spent;
  /** Calls of its descendants. */
  readonly workers: Spent;
  /** Model of its newest turn. */
  readonly last_model: string | null;
  readonly last_effort: Session['last_effort'];
  /** Its descendants, and those of them that have not ended. */
  readonly descendants: { readonly count: number; readonly active: number };
  /** The delegation of a worker; null for a top-level session. */
  readonly delegation: { readonly task: string; readonly max_cost_pusd: Pusd | null } | null;
  /** Title of its first user message; a worker's comes from its task. */
  readonly title: string | null;
  readonly waiting_on: Waiting[];
  readonly failure: Session['failure'];
  /** Of the open turn. */
  readonly forecast: Session['forecast_usd'];
}

const NOTHING_SPENT: Spent = { cost_pusd: ZERO_PUSD, unpriced: false, simulated: false };

/** Facts of a new top-level session. */
export const NOTHING_YET: SessionFacts = {
  owner_name: null,
  open_turn: null,
  own: NOTHING_SPENT,
  workers: NOTHING_SPENT,
  last_model: null,
  last_effort: null,
  descendants: { count: 0, active: 0 },
  delegation: null,
  title: null,
  waiting_on: [],
  failure: null,
  forecast: null,
};

export function sessionView(record: SessionRecord, facts: SessionFacts): Session {
  const { open_turn, own, workers, delegation } = facts;
  const limit = record.is_worker ? (delegation?.max_cost_pusd ?? null) : record.max_cost_pusd;
  return {
    id: record.id,
    workspace_path: record.workspace_path,
    active_model: record.active_model,
    pending_active_model: record.pending_active_model,
    swap_queued: record.pending_active_model !== null,
    routing_policy_version: record.routing_policy_version,
    cost_so_far_usd: fromPusd(own.cost_pusd),
    workers_cost_usd: fromPusd(workers.cost_pusd),
    has_unpriced_calls: own.unpriced || workers.unpriced,
    has_simulated_calls: own.simulated || workers.simulated,
    last_model: facts.last_model,
    last_effort: facts.last_effort,
    worker_count: facts.descendants.count,
    active_worker_count: facts.descendants.active,
    turn_count: record.turn_count,
    current_turn_id: open_turn?.id ?? null,
    current_turn_status: open_turn?.status ?? null,
    status: findStatus(record, open_turn),
    ended_at: record.ended_at === null ? null : isoTime(record.ended_at),
    disposition: record.disposition,
    created_at: isoTime(record.created_at),
    updated_at: isoTime(record.updated_at),
    parent_session_id: record.parent_session_id,
    parent_tool_use_id: record.parent_tool_use_id,
    is_worker: record.is_worker,
    root_session_id: record.root_session_id,
    delegation_depth: record.delegation_depth,
    continues_session_id: record.continues_session_id,
    forked_from: readForkPoint(record),
    has_workspace: record.has_workspace,
    record_case: record.record_case,
    experiment: record.experiment && { ...record.experiment, folder: record.tree_path },
    worker_name: record.worker_name,
    worker_digest: record.worker_digest,
    worker_origin: record.worker_origin,
    approval_mode: record.approval_mode,
    door: record.door,
    caller: record.caller,
    client: record.client,
    client_ref: record.client_ref,
    ...viewOwnership(record, facts.owner_name),
    // The first message of a worker is the same for all of them.
    title: delegation === null ? facts.title : firstLine(delegation.task),
    task: delegation?.task ?? null,
    max_cost_usd: fromPusdOrNull(record.max_cost_pusd),
    on_reached: record.on_reached,
    budget: limit === null ? null : viewBudget(limit, own.cost_pusd, workers.cost_pusd),
    forecast_usd: facts.forecast,
    confirm_above_usd: fromPusdOrNull(record.confirm_above_pusd),
    confirm_above_workers: record.confirm_above_workers,
    failure: facts.failure,
    waiting_on: facts.waiting_on,
  };
}

/** Nothing where no person owns or shares the session: a server of one person has no such fields (23). */
export function viewOwnership(
  { owner, share }: Pick<SessionRecord, 'owner' | 'share'>,
  name: string | null,
): Pick<Session, 'owner' | 'share'> {
  if (owner === null && share === 'read') return {};
  return { owner: owner === null ? null : toPersonRef(owner, name), share };
}

function readForkPoint(record: SessionRecord): Session['forked_from'] {
  const { forked_from_session_id: session_id, forked_from_message_id: message_id } = record;
  if (session_id === null || message_id === null) return null;
  return { session_id, message_id };
}

function findStatus({ ended_at }: SessionRecord, openTurn: SessionFacts['open_turn']): SessionStatus {
  if (ended_at !== null) return 'ended';
  if (openTurn === null) return 'idle';
  if (openTurn.status === 'interrupted') return 'interrupted';
  return 'running';
}

/** The sums of the ledger; reservations are in memory, and the engine adds them (14 §4). */
function viewBudget(limit: Pusd, own: bigint, workers: bigint): BudgetView {
  const spent = own + workers;
  const remaining = limit - spent;
  return {
    max_cost_usd: fromPusd(limit),
    spent_usd: fromPusd(spent),
    reserved_usd: '0',
    remaining_usd: fromPusd(remaining > 0n ? remaining : 0n),
    worker_spent_usd: fromPusd(workers),
  };
}
