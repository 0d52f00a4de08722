// One turn from its submission to its end, as an async iterator of its events (17 §4).
import type { SubmittedTurn, Turn } from './answers.ts';
import type { StreamEvent, StreamItem } from './events.ts';
import { ApiError } from './request.ts';

/** What it needs of the client. */
export interface TurnCalls {
  /** A stream of the session that begins with a snapshot. */
  readonly stream: () => AsyncIterable<StreamItem>;
  readonly submit: () => Promise<SubmittedTurn>;
  readonly read: (turnId: string) => Promise<Turn>;
  readonly signal: AbortSignal | undefined;
}

const ENDS: readonly string[] = ['turn.completed', 'turn.failed', 'turn.cancelled'];

/**
 * Submits once the stream stands, so that no event is missed, and yields what happens in the session until the turn has
 * ended; its return value is the turn. A server that went away is waited for. An aborted signal is thrown and ends the
 * watching alone, not the turn.
 */
export async function* followTurn(calls: TurnCalls): AsyncGenerator<StreamEvent, Turn, undefined> {
  let turnId: string | null = null;
  for await (const item of calls.stream()) {
    if (item.type === 'event') {
      yield item.event;
      const { type, turn_id } = item.event;
      if (turnId !== null && turn_id === turnId && ENDS.includes(type)) return calls.read(turnId);
    } else if (turnId === null) {
      turnId = (await calls.submit()).turn_id;
    } else {
      // A later snapshot means that events between are gone, the turn's end perhaps among them.
      const turn = await calls.read(turnId);
      if (turn.ended_at !== null) return turn;
    }
  }
  calls.signal?.throwIfAborted();
  if (turnId !== null) return calls.read(turnId);
  throw new ApiError(0, 'stream_closed', 'the stream ended before the turn was submitted', {});
}
