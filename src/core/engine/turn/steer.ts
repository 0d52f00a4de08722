// A message for a turn that runs: stored at once, read at its next step boundary (20 §4).

import type { Write } from '#core/ports/journal.ts';
import { JournalConflict } from '#protocol/batch.ts';
import { isoTime } from '#protocol/clock.ts';
import { AppError, type Issue, validationError } from '#protocol/errors.ts';
import type { TurnId } from '#protocol/ids.ts';
import { textBlock, textOf } from '#protocol/message.ts';
import type { SessionRecord } from '#protocol/session.ts';
import { MAX_TURN_INPUTS, type TurnRecord } from '#protocol/turn.ts';
import { alreadyEnded, belongsToDelegation } from '../session/find-session.ts';
import type { Engine } from '../state/engine.ts';
import type { TakenMessage } from './accept-message.ts';

const MAX_CHARACTERS = 20_000;

/** What is answered to a message that joined a turn. */
export interface SteeringReceipt {
  readonly turn_id: TurnId;
  readonly session_id: SessionRecord['id'];
  readonly submitted_at: string;
  readonly user_message_id: null;
  readonly steered: true;
  readonly input_id: string;
}

/** Throws `validation_error` for what no running turn can take, whether one runs or not. */
export function checkSteering({ content, override }: TakenMessage, attachments: readonly string[]): void {
  const issues: Issue[] = [];
  if (attachments.length > 0) issues.push({ path: 'attachments', message: 'cannot steer a turn' });
  else if (content.some((block) => block.type !== 'text'))
    issues.push({ path: 'content', message: 'must be text alone to steer a turn' });
  else if ([...textOf(content)].length > MAX_CHARACTERS)
    issues.push({ path: 'content', message: `must have at most ${MAX_CHARACTERS} characters to steer a turn` });
  if (override !== null)
    issues.push({ path: 'per_message_override', message: 'a steered message runs on the model of its turn' });
  if (issues.length > 0) throw validationError(issues);
}

/**
 * Gives the message to the session's open turn. Null when there is none: the session's lock is then held for `turnId`,
 * and an ordinary turn may start. A turn that is being cancelled or admitted is waited for.
 * Throws `session_is_worker`, `session_already_ended`, or `turn_in_flight` when too many messages wait.
 */
export async function steerOrReserve(
  engine: Engine,
  session: SessionRecord,
  message: TakenMessage & {
    readonly turnId: TurnId;
    readonly claim: ((status: number, body: unknown) => Write) | undefined;
  },
): Promise<SteeringReceipt | null> {
  for (;;) {
    const turn = await engine.store.turns.open(session.id);
    const running = turn && engine.locks.turn(turn.id);
    const takes = turn && (turn.status === 'interrupted' || running?.scope.signal.aborted === false);
    if (takes) {
      const receipt = await join(engine, session, turn, message);
      if (receipt !== null) return receipt;
      continue;
    }
    if (engine.ending.has(session.id)) throw alreadyEnded();
    if (session.is_worker) throw belongsToDelegation();
    const lock = engine.locks.reserve(session.id, message.turnId);
    if (!lock.held) return null;
    await (lock.turn?.done ?? engine.locks.decided(session.id));
  }
}

/** Null when the turn has ended meanwhile. */
async function join(
  engine: Engine,
  session: SessionRecord,
  turn: TurnRecord,
  { content, claim }: Parameters<typeof steerOrReserve>[2],
): Promise<SteeringReceipt | null> {
  const submitted = engine.clock.now();
  const receipt: SteeringReceipt = {
    turn_id: turn.id,
    session_id: session.id,
    submitted_at: isoTime(submitted),
    user_message_id: null,
    steered: true,
    input_id: engine.ids.next(),
  };
  const input = {
    id: receipt.input_id,
    session_id: session.id,
    turn_id: turn.id,
    content: content.flatMap((block) => (block.type === 'text' ? [textBlock(block.text)] : [])),
    submitted_at: submitted,
  };
  try {
    await engine.journal.commit({
      writes: [{ kind: 'turn_input.insert', input }, ...(claim ? [claim(202, receipt)] : [])],
      emit: [],
    });
    return receipt;
  } catch (error) {
    if (!(error instanceof JournalConflict)) throw error;
    if (error.code === 'turn_closed') return null;
    if (error.code === 'inputs_full')
      throw new AppError('turn_in_flight', `${MAX_TURN_INPUTS} messages wait for this turn already; send it later`, {
        current_turn_id: turn.id,
      });
    throw error;
  }
}
