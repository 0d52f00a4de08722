// Notices queued in the database: written with their events, sent by one node (16 §9).
import type { Logger } from '#core/ports/logger.ts';
import type { Notices } from '#core/ports/notice-queue.ts';
import { type Clock, sleep } from '#protocol/clock.ts';
import type { AnyEvent } from '#protocol/event.ts';
import type { Send } from '../postgres/connection/client.ts';
import { type Pool, RELEASE_TURN, TRY_TURN } from '../postgres/connection/pool.ts';
import { type EventRow, storedEvent } from '../schema/rows.ts';

/** Name of the lock in the database; earlier versions use it too. */
const SENDING = 'telling receivers';
/** Interval of attempts to take the lock, and of checks whether this node still holds it. */
const LOOK_MS = 2000;

const NEXT = `SELECT e.* FROM notices n JOIN events e ON e.id = n.event_id
  WHERE n.receiver = @receiver ORDER BY n.event_id LIMIT @most`;
const DEQUEUE = 'DELETE FROM notices WHERE receiver = @receiver AND event_id = @event';
/** Deletes notices whose events were purged or pruned. */
const GONE = `DELETE FROM notices n WHERE NOT EXISTS (SELECT 1 FROM event_rows e WHERE e.id = n.event_id)`;

export function createNotices(pool: Pool, clock: Clock, log: Logger): Notices {
  /** Runs while the connection is open, since the lock ends with the connection. */
  async function holdLock(
    send: Send,
    closing: AbortSignal,
    work: (ending: AbortSignal) => Promise<void>,
  ): Promise<void> {
    const over = new AbortController();
    const ending = AbortSignal.any([closing, over.signal]);
    const watching = (async () => {
      while (!ending.aborted) {
        await sleep(clock, LOOK_MS, ending).catch(() => {});
        if (!ending.aborted) await send('SELECT 1', []);
      }
    })().catch(() => {});
    void watching.finally(() => over.abort());
    try {
      await work(ending);
    } finally {
      over.abort();
      await watching;
    }
  }

  async function workUnderLock(closing: AbortSignal, work: (ending: AbortSignal) => Promise<void>) {
    await pool.connection(async (send) => {
      const { rows } = await send<{ got: number }>(TRY_TURN, [SENDING]);
      if (rows[0]?.got !== 1) return;
      try {
        await send(GONE, []);
        await holdLock(send, closing, work);
      } finally {
        await send(RELEASE_TURN, [SENDING]);
      }
    });
  }

  return {
    async alone(closing, work) {
      while (!closing.aborted) {
        await workUnderLock(closing, work).catch((err: unknown) => {
          if (!closing.aborted) log.warn({ err }, 'notices cannot be sent at the moment; the next attempt follows');
        });
        await sleep(clock, LOOK_MS, closing).catch(() => {});
      }
    },
    next: async (receiver, most) =>
      (await pool.send<EventRow>(NEXT, { receiver, most })).rows.map((row) => storedEvent(row) as AnyEvent),
    markSent: async (receiver, event) => void (await pool.send(DEQUEUE, { receiver, event })),
  };
}
