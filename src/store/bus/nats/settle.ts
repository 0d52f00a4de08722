// The end of messages whose own end was not heard: as it is stored, or with what they had (16 §6.5).

import type { Published } from '#core/ports/live-bus.ts';
import type { Store } from '#core/ports/store-reader.ts';
import type { Clock } from '#protocol/clock.ts';
import type { Message, StopReason } from '#protocol/message.ts';
import { type Begun, closed, type Tree } from './tree.ts';

export interface SettleParts {
  readonly store: Pick<Store, 'messages' | 'turns'>;
  readonly clock: Clock;
}

/** Ends of those broken messages of the tree that have come to one. */
export async function settleMessage(tree: Tree, { store, clock }: SettleParts): Promise<readonly Published[]> {
  const ends: Published[] = [];
  for (const start of tree.broken()) {
    const { message_id } = start.delta.payload;
    // First the turn: what it said is stored when it has ended.
    const turn = await store.turns.open(start.session_id as Message['session_id']);
    const stored = await store.messages.get(message_id);
    const speaks = stored === null && (turn?.id ?? null) === start.turn_id;
    if (speaks || !tree.settle(message_id)) continue;
    const transient = stored === null ? closed(start, clock.now()) : asStored(start, stored, clock.now());
    ends.push({ kind: 'transient', transient });
  }
  return ends;
}

function asStored(start: Begun, { content, metadata }: Message, at: number) {
  const { delta, ...rest } = closed(start, at);
  if (delta.type !== 'message.complete') return { ...rest, delta };
  const usage = metadata.usage ?? delta.payload.usage;
  const stop_reason = toStopReason(metadata.status, content);
  const payload = { ...delta.payload, stop_reason, final_content: content, usage, latency_ms: usage.latency_ms };
  return { ...rest, delta: { ...delta, payload } };
}

/** The exact one is in `llm.call_completed`. */
function toStopReason(status: Message['metadata']['status'], content: Message['content']): StopReason {
  if (status === 'cancelled' || status === 'error') return status;
  return content.some(({ type }) => type === 'tool_use') ? 'tool_use' : 'end_turn';
}
