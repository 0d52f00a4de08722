// What a tree waits for, in one line, as the server says it (20 §6). For a person who looks on.
import type { MetisClient } from '#client/client.ts';
import { type Waiting, waitingEnds, wordsFor } from '#client/waiting.ts';
import { type Clock, systemClock, type Timer } from '#protocol/clock.ts';
import { formatAge } from './style.ts';

const ASK_AGAIN_MS = 2000;
const SHOWN = 3;
export interface WaitingLine {
  /** '' when nothing is waited for. */
  line(): string;
  /** Something happened in a session: what was known of it is over. */
  clear(sessionId: string): void;
  stop(): void;
}

/** Asks every 2 s; what the server does not answer is not shown. `who` names a session in a word. */
export function watchWaiting(
  client: MetisClient,
  sessionId: string,
  who: (sessionId: string) => string,
  clock: Clock = systemClock,
): WaitingLine {
  let waiting: readonly Waiting[] = [];
  let timer: Timer | null = null;
  const stopped = new AbortController();
  const look = async () => {
    try {
      waiting = (await client.getSession(sessionId, { signal: stopped.signal })).waiting_on;
    } catch {
      waiting = [];
    }
    if (!stopped.signal.aborted) timer = clock.after(ASK_AGAIN_MS, () => void look());
  };
  timer = clock.after(ASK_AGAIN_MS, () => void look());
  return {
    line() {
      const ends = waitingEnds(waiting);
      const told = ends
        .slice(0, SHOWN)
        .map(
          ({ kind, session_id, since }) =>
            `${wordsFor(kind)} (${who(session_id)}, ${formatAge(clock.now() - Date.parse(since))})`,
        );
      const more = ends.length > SHOWN ? ` and ${ends.length - SHOWN} more` : '';
      return told.length === 0 ? '' : `waits for ${told.join(', ')}${more}`;
    },
    clear(id) {
      waiting = waiting.filter(({ session_id }) => session_id !== id);
    },
    stop() {
      stopped.abort();
      timer?.cancel();
    },
  };
}
