// Messages sent to a turn that runs: read at its next step boundary (20 §4).

import type { Write } from '#core/ports/journal.ts';
import type { Transient } from '#protocol/delta.ts';
import { draft, type EventDraft } from '#protocol/event.ts';
import type { StoredMessage } from '#protocol/message.ts';
import { appended } from '../model-call/deltas.ts';
import type { Engine } from '../state/engine.ts';
import { inputsRead } from '../state/run-progress.ts';
import type { TurnRun } from '../state/turn-run.ts';
import { newUserMessage } from './admit.ts';
import { nextStep } from './next-step.ts';

/** What waits for the turn, as the messages it becomes. */
export interface Inputs {
  readonly messages: readonly StoredMessage[];
  readonly writes: readonly Write[];
  /** For each message its `turn.steered`, then the message for those who watch. */
  readonly emit: readonly (EventDraft | Transient)[];
}

export const NONE: Inputs = { messages: [], writes: [], emit: [] };

/** What is to be read now, behind `before`. Null where something waits and no model call may follow: nobody would answer it, and the turn gives it back as it ends. */
export async function waitingInputs(
  engine: Engine,
  run: TurnRun,
  before: readonly StoredMessage[] = [],
): Promise<Inputs | null> {
  const inputs = await engine.store.turns.inputs(run.turn.id);
  if (inputs.length === 0) return NONE;
  const { session, turn } = run;
  const now = engine.clock.now();
  const messages = inputs.map(({ content }) => newUserMessage(engine, session, { turn_id: turn.id, content, now }));
  if (nextStep(engine, run, [...run.history, ...before, ...messages]).kind !== 'call_model') return null;
  return {
    messages,
    writes: inputs.flatMap(({ id }, i): Write[] => [
      { kind: 'turn_input.read', id },
      { kind: 'message.insert', message: messages[i]! },
    ]),
    emit: inputs.flatMap(({ id, submitted_at }, i) => [
      draft({
        type: 'turn.steered',
        session_id: session.id,
        turn_id: turn.id,
        parent: run.started_event_id,
        payload: { message_id: messages[i]!.id, input_id: id, waited_ms: Math.max(0, now - submitted_at) },
      }),
      appended(engine, run, messages[i]!),
    ]),
  };
}

/**
 * Reads what waits for a turn that would end here, so that one more model call follows.
 * @returns `limited` where no call may follow
 */
export async function readInputs(engine: Engine, run: TurnRun): Promise<'read' | 'nothing' | 'limited'> {
  const inputs = await waitingInputs(engine, run);
  if (inputs === null) return 'limited';
  const { messages, writes, emit } = inputs;
  if (messages.length === 0) return 'nothing';
  const events = await engine.journal.commit({ writes, emit });
  inputsRead(run, messages, events.at(-1)!.id);
  return 'read';
}
