// What a running turn reads at its next step boundary: messages of people and results of its background workers (20 §4, §9).
import { deliveryTexts } from '#core/policy/delegation/worker-outcome.ts';
import type { Write } from '#core/ports/journal-writer.ts';
import type { DeliveryRecord } from '#protocol/delegate.ts';
import type { Transient } from '#protocol/delta.ts';
import { draft, type EventDraft } from '#protocol/event.ts';
import type { EventId } from '#protocol/ids.ts';
import { plainMetadata, type StoredMessage, textBlock } from '#protocol/message.ts';
import { compareText } from '#protocol/text/compare-text.ts';
import type { TurnInputRecord } from '#protocol/turn.ts';
import { messageAppended } from '../model-call/call-records.ts';
import { readBudgetLines } from '../money/budget-notices.ts';
import type { Budgets, Delegations, Runtime, Storage } from '../state/engine.ts';
import { recordInputs, recordMessages, type TurnBase } from '../state/turn-run.ts';
import { CUT_OFF_TEXT } from '../tool-call/tool-results.ts';
import { closeCalls } from './close-calls.ts';
import { findEnds, listDeliveries, markDelivered } from './deliveries.ts';
import { newUserMessage } from './incoming-message.ts';
import { decideNextStep } from './next-step.ts';

/** The messages to read, in their stored form. */
export interface Inputs {
  readonly messages: readonly StoredMessage[];
  readonly writes: readonly Write[];
  /** Two items per message: its event, then the message for stream clients. */
  readonly emit: readonly (EventDraft | Transient)[];
}

export const NO_INPUTS: Inputs = { messages: [], writes: [], emit: [] };

type InputEngine = Runtime & Storage & Budgets & Delegations;

/** One message, with the write and the event that mark it as read. */
interface Input {
  readonly message: StoredMessage;
  readonly write: Write;
  readonly event: EventDraft;
}

/**
 * The messages to read now, behind `before`. Null where messages wait and no model call may follow: the turn counts them
 * as unread when it ends.
 * @param deliveries of the turn that are not in its history
 */
export async function collectInputs(
  engine: InputEngine,
  run: TurnBase,
  before: readonly StoredMessage[],
  deliveries: readonly DeliveryRecord[],
): Promise<Inputs | null> {
  const sent = await engine.store.turns.inputs(run.turn.id);
  // Those in the result of a call of `workers` come with it.
  const results = deliveries.filter(({ read_by }) => read_by === null);
  if (sent.length === 0 && results.length === 0) return NO_INPUTS;
  const ends = await findEnds(engine, run.turn.id, results);
  const inputs: Input[] = [];
  // In the order in which they came: ids grow.
  for (const item of [...sent, ...results].sort((a, b) => compareText(a.id, b.id))) {
    if ('content' in item) inputs.push(toSteeredMessage(engine, run, item));
    else inputs.push(await toDelivery(engine, run, item, ends));
  }
  const messages = inputs.map(({ message }) => message);
  if (decideNextStep(engine, run, [...run.history, ...before, ...messages]).kind !== 'call_model') return null;
  return {
    messages,
    writes: inputs.flatMap(({ write, message }): Write[] => [write, { kind: 'message.insert', message }]),
    emit: inputs.flatMap(({ event, message }) => [event, messageAppended(engine, run, message)]),
  };
}

function toSteeredMessage(
  engine: Runtime,
  { session, turn, started_event_id }: TurnBase,
  { id, content, submitted_at }: TurnInputRecord,
): Input {
  const now = engine.clock.now();
  const message = newUserMessage(engine, session, { turn_id: turn.id, content, now });
  return {
    message,
    write: { kind: 'turn_input.read', id },
    event: draft({
      type: 'turn.steered',
      session_id: session.id,
      turn_id: turn.id,
      parent: started_event_id,
      payload: { message_id: message.id, input_id: id, waited_ms: Math.max(0, now - submitted_at) },
    }),
  };
}

async function toDelivery(
  engine: InputEngine,
  run: TurnBase,
  delivery: DeliveryRecord,
  ends: ReadonlyMap<string, EventId>,
): Promise<Input> {
  const delegation = await engine.store.delegations.findByWorker(delivery.worker_session_id);
  if (delegation === null) throw new Error(`the delegation of ${delivery.worker_session_id} is gone`);
  const { texts, notes } = await engine.workers.describeResult(delegation);
  const budget = await readBudgetLines(engine, run, true);
  const content = deliveryTexts(delegation, { texts, notes: [...notes, ...budget] }).map(textBlock);
  const written = newUserMessage(engine, run.session, { turn_id: run.turn.id, content, now: engine.clock.now() });
  // Distinguishes a delivery from what a person writes.
  const message = { ...written, metadata: plainMetadata(delegation.tool_use_id) };
  return { message, ...markDelivered(engine, run, delivery, { message_id: message.id, ends }) };
}

/**
 * Reads the waiting messages of a turn that would end here, so that one more model call follows. Calls of an answer that
 * was cut off are answered first: no provider takes a history without their results.
 * @returns `limited` where no call may follow
 */
export async function readInputs(engine: InputEngine, run: TurnBase): Promise<'read' | 'nothing' | 'limited'> {
  const inputs = await collectInputs(engine, run, [], await listDeliveries(engine, run));
  if (inputs === null) return 'limited';
  const { messages, writes, emit } = inputs;
  if (messages.length === 0) return 'nothing';
  const closing = await closeCalls(engine, run, CUT_OFF_TEXT);
  const appended = closing.messages.map((message) => messageAppended(engine, run, message));
  const events = await engine.journal.commit({
    writes: [...closing.writes, ...writes],
    emit: [...closing.failed, ...appended, ...emit],
  });
  recordMessages(run, closing.messages);
  recordInputs(run, messages, events.at(-1)!.id);
  return 'read';
}
