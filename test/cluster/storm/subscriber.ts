// One who watches a session with its workers, by whichever node is up, and notes what a stream may not do (16 §13).
import { WebSocket } from 'ws';
import { pause } from '../../support/planned-work.ts';

export interface Subscriber {
  readonly session: string;
  /** The stored event after which it began. */
  readonly since: string | null;
  /** Stored events in the order they came, over all connections. */
  readonly seen: readonly string[];
  /** What a stream may not do. */
  readonly faults: readonly string[];
  /** How often its connection broke. */
  readonly breaks: number;
  /** The longest time between two events of a turn, ms. */
  readonly longestPause: number;
  /** The terminal event of this turn has come. */
  heard(turn: string): boolean;
  stop(): Promise<void>;
}

const ENDS = ['turn.completed', 'turn.failed', 'turn.cancelled'];

/** @param nodeUrl of a node that is up, another one each time */
export function subscribe(session: string, nodeUrl: () => string): Subscriber {
  const seen: string[] = [];
  const faults: string[] = [];
  const ended = new Set<string>();
  let since: string | null = null;
  let breaks = 0;
  let longestPause = 0;
  /** When the turn that is open was heard of last. */
  let heardAt: number | null = null;
  let stopped = false;
  let socket: WebSocket | null = null;
  /** Messages of its connection that were begun and not ended. */
  let open = new Set<string>();

  function stored(event: { id: string; type: string; session_id: string; turn_id: string }): void {
    const last = seen.at(-1) ?? since ?? '';
    if (event.id <= last) faults.push(`${event.id} after ${last}`);
    seen.push(event.id);
    noteTime(event.type);
    if (event.session_id === session && ENDS.includes(event.type)) {
      ended.add(event.turn_id);
      heardAt = null;
    }
  }
  function noteTime(type: string): void {
    const now = performance.now();
    if (heardAt !== null) longestPause = Math.max(longestPause, now - heardAt);
    if (type === 'turn.started' || heardAt !== null) heardAt = now;
  }

  function once(): Promise<void> {
    open = new Set();
    return new Promise((resolve) => {
      const url = `${nodeUrl().replace('http', 'ws')}/sessions/${session}/stream`;
      const ws = new WebSocket(url);
      socket = ws;
      let over = false;
      ws.on('open', () => {
        const from = seen.at(-1) ?? since;
        ws.send(
          JSON.stringify({
            type: 'subscribe',
            include_worker_sessions: true,
            ...(from === null ? {} : { since: from }),
          }),
        );
      });
      ws.on('message', (data) => {
        const frame = JSON.parse(String(data));
        if (frame.type === 'subscribe_ack') since ??= frame.since;
        else if (frame.type === 'subscribe_error') {
          // A node that is going down, or has just lost the database, says so; a place that is gone it may not.
          if (frame.code === 'cursor_expired') faults.push(`${frame.code}: ${frame.message}`);
          ws.close();
        } else if (frame.type === 'event' && !frame.event.transient) stored(frame.event);
        else if (frame.type === 'event') {
          const id = frame.event.payload?.message_id;
          if (frame.event.type === 'message.start') open.add(id);
          else if (frame.event.type === 'message.complete') open.delete(id);
        }
      });
      const end = () => {
        if (over) return;
        over = true;
        resolve();
      };
      ws.on('error', end);
      ws.on('close', end);
    });
  }
  const watching = (async () => {
    while (!stopped) {
      await once().catch(() => {});
      if (stopped) return;
      breaks += 1;
      await pause(100);
    }
  })();

  return {
    session,
    seen,
    faults,
    get since() {
      return since;
    },
    get breaks() {
      return breaks;
    },
    get longestPause() {
      return longestPause;
    },
    heard: (turn) => ended.has(turn),
    async stop() {
      stopped = true;
      // Where the connection stands, each has come to its end.
      if (socket?.readyState === WebSocket.OPEN) faults.push(...[...open].map((id) => `${id} was not ended`));
      socket?.terminate();
      await watching;
    },
  };
}
