// A session's live stream as a hook: planner and workers, taken up again by the client after a broken connection.
import { useEffect, useRef, useState } from 'preact/hooks';
import type { StreamItem } from '#client/client.ts';
import { useApi } from './api.ts';

/**
 * Follows a session with all its workers from a snapshot on. Items are handed over in bundles, one a frame, so that a
 * model's stream costs one drawing and not one per word.
 * `onLost` is called when the connection breaks: what is not stored as an event may be missing from then on.
 * @returns why the stream ended for good; null while it goes on
 */
export function useSessionStream(
  sessionId: string,
  onItems: (items: readonly StreamItem[]) => void,
  onLost: () => void,
): unknown {
  const { client, failed } = useApi();
  const [error, setError] = useState<unknown>(null);
  const handler = useRef(onItems);
  handler.current = onItems;
  const lost = useRef(onLost);
  lost.current = onLost;

  useEffect(() => {
    const gone = new AbortController();
    let waiting: StreamItem[] = [];
    let frame = 0;
    const hand = () => {
      frame = 0;
      const items = waiting;
      waiting = [];
      if (!gone.signal.aborted) handler.current(items);
    };
    const follow = async () => {
      const stream = client.stream(sessionId, {
        snapshot: true,
        include_worker_sessions: true,
        signal: gone.signal,
        connected: (yes) => {
          if (yes || gone.signal.aborted) return;
          hand();
          lost.current();
        },
      });
      for await (const item of stream) {
        waiting.push(item);
        // A hidden page draws no frames, and what came meanwhile must not pile up without end.
        if (document.visibilityState !== 'visible') hand();
        else if (frame === 0) frame = requestAnimationFrame(hand);
      }
    };
    setError(null);
    follow().catch((reason: unknown) => {
      if (gone.signal.aborted) return;
      failed(reason);
      setError(reason);
    });
    return () => {
      gone.abort();
      cancelAnimationFrame(frame);
    };
  }, [client, failed, sessionId]);
  return error;
}
