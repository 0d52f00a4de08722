// Changing an open session: its sticky model and its limit (03 §4.2, 14 §1).

import type { SessionId, TurnId } from '#protocol/ids.ts';
import type { OnReached } from '#protocol/scalars.ts';
import type { Write } from '../ports/journal.ts';
import { liveSession } from './session/find-session.ts';
import { knownModel } from './session/new-session.ts';
import type { Engine } from './state/engine.ts';
import { dropDecisions } from './state/gateway-memory.ts';
import { resumeIfPaid } from './turn/planner-turn.ts';

export interface SessionPatch {
  /** Alias or id; null clears the sticky choice; absent leaves it. */
  readonly active_model?: string | null;
  readonly max_cost_usd?: string | null;
  readonly on_reached?: OnReached;
}

export interface PatchReply {
  readonly id: SessionId;
  readonly active_model: string | null;
  readonly swap_queued: boolean;
  readonly swap_queued_until_turn: TurnId | null;
  readonly max_cost_usd: string | null;
  readonly on_reached: OnReached;
}

/** Changes the sticky model (queued while a turn is open) and the limit (03 §4.2, 14 §1). */
export async function patchSession(engine: Engine, id: string, patch: SessionPatch): Promise<PatchReply> {
  const session = await liveSession(engine, id);
  const at = engine.clock.now();
  const writes: Write[] = [];
  const open = await engine.store.turns.open(session.id);
  let target = session.pending_active_model ? session.pending_active_model.model : session.active_model;
  let queued = session.pending_active_model !== null;
  if (patch.active_model !== undefined) {
    target = patch.active_model === null ? null : knownModel(engine, patch.active_model);
    queued = open !== null && target !== session.active_model;
    if (open === null) writes.push({ kind: 'session.set_model', session_id: session.id, model: target, at });
    else
      writes.push({
        kind: 'session.queue_model',
        session_id: session.id,
        pending: queued ? { model: target } : null,
        at,
      });
  }
  // Only what was sent is written: what somebody else sets at the same time stays.
  const { max_cost_usd, on_reached } = patch;
  if (max_cost_usd !== undefined) writes.push({ kind: 'session.set_limit', session_id: session.id, max_cost_usd, at });
  if (on_reached !== undefined) writes.push({ kind: 'session.set_on_reached', session_id: session.id, on_reached, at });
  await engine.journal.commit({ writes, emit: [] });
  if (patch.active_model !== undefined && queued && (await engine.store.turns.open(session.id)) === null) {
    // The turn ended while the swap was on its way: nothing would land it before the end of the next one.
    queued = false;
    const landed: Write = { kind: 'session.set_model', session_id: session.id, model: target, at };
    await engine.journal.commit({ writes: [landed], emit: [] });
  }
  dropDecisions(engine.gateway, session.id);
  if (max_cost_usd !== undefined) await resumeIfPaid(engine, session.id);
  const stored = (await engine.store.sessions.record(session.id)) ?? session;
  return {
    id: session.id,
    active_model: target,
    swap_queued: queued,
    swap_queued_until_turn: queued ? (open?.id ?? null) : null,
    max_cost_usd: stored.max_cost_usd,
    on_reached: stored.on_reached,
  };
}
