// Sessions, turns, workers and calls that stand in the database of a world.

import type { TurnOutcome } from '#core/ports/journal-writer.ts';
import type { SessionRecord } from '#protocol/session.ts';
import type { TurnRecord } from '#protocol/turn.ts';
import {
  assistantMessage,
  delegationRecord,
  outcome,
  sessionRecord,
  toolCall,
  turnRecord,
  userMessage,
  workerRecord,
} from '../../support/records.ts';
import type { World } from './world.ts';

/** A session that stands in the database. */
export async function storedSession(world: World, over: Partial<SessionRecord> = {}): Promise<SessionRecord> {
  const session = sessionRecord(world, over);
  await world.journal.commit({ writes: [{ kind: 'session.insert', session }], emit: [] });
  return session;
}

/** An open turn with its user message. */
export async function storedTurn(world: World, session: SessionRecord, text = 'hello'): Promise<TurnRecord> {
  const turn = turnRecord(world, session);
  await world.journal.commit({
    writes: [
      { kind: 'turn.insert', turn },
      { kind: 'message.insert', message: userMessage(world, turn, text) },
    ],
    emit: [],
  });
  return turn;
}

export async function endTurn(world: World, turn: TurnRecord, over: Partial<TurnOutcome> = {}): Promise<void> {
  await world.journal.commit({
    writes: [
      {
        kind: 'turn.end',
        turn_id: turn.id,
        session_id: turn.session_id,
        outcome: outcome(world, over),
        unread_inputs: 0,
      },
    ],
    emit: [],
  });
}

/** A worker of an open turn, with its delegation. */
export async function storedWorker(
  world: World,
  parent: SessionRecord,
  turn: TurnRecord,
  over: Partial<SessionRecord> = {},
): Promise<SessionRecord> {
  const call = world.ids.toolUse();
  const worker = workerRecord(world, parent, call, over);
  await world.journal.commit({
    writes: [
      { kind: 'session.insert', session: worker },
      { kind: 'delegation.insert', delegation: delegationRecord(world, turn, call, { worker_session_id: worker.id }) },
    ],
    emit: [],
  });
  return worker;
}

/** A complete answer that calls a tool, with its pending call. */
export async function storedToolUse(world: World, turn: TurnRecord) {
  const id = world.ids.toolUse();
  const message = assistantMessage(world, turn, [{ type: 'tool_use', id, name: 'read_file', input: {} }]);
  await world.journal.commit({
    writes: [
      { kind: 'message.insert', message },
      { kind: 'tool_call.insert', call: toolCall(world, message, id) },
    ],
    emit: [],
  });
  return { id, message };
}
