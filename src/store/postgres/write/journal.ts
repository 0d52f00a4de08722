// The only writer of a node: one transaction a flush, one numbered commit a tree; then publication (16 §3).

import { type PreparedBatch, prepareBatch } from '../../../policy/journal/prepare.ts';
import type { Journal } from '../../../ports/journal.ts';
import type { LiveBus, Published } from '../../../ports/live-bus.ts';
import type { Effects } from '../../sql/write/effects.ts';
import { isTransient } from '../connection/faults.ts';
import { pause } from '../connection/pause.ts';
import {
  AGAIN_MS,
  type CommitOptions,
  createCommits,
  MAX_ATTEMPTS,
  type Part,
  type QueuedBatch,
  type Written,
} from './commits.ts';
import { journalFault } from './conflict.ts';
import type { Drawn } from './event-log.ts';
import { createLiveSessions } from './live-sessions.ts';
import { type Place, placeOf, ROOT_OF } from './place.ts';
import { savePriceVersion } from './price-versions.ts';
import { prune } from './prune.ts';
import { purge } from './purge.ts';

export interface JournalOptions extends CommitOptions {
  /** Payloads of events are not held against their schemas. */
  readonly trusted?: boolean;
  readonly bus: LiveBus;
  /** What is kept decoded follows the commit before anybody hears of it. */
  readonly keepCurrent: (effects: Effects) => void;
  /** Nothing of these sessions is kept from now on. */
  readonly forget: (sessions: readonly string[]) => void;
}

/** At most so many batches are one transaction, and so many transactions are under way. */
const MAX_BATCHES = 256;
const MAX_FLUSHES = 2;
/** Something that is done by itself, in its place among the batches of its tree. */
interface QueuedTask {
  readonly kind: 'task';
  readonly run: () => Promise<void>;
}
type Queued = QueuedBatch | QueuedTask | Extract<Published, { readonly kind: 'transient' }>;

/** With its place in the order of all that came. */
interface Arrived {
  readonly number: number;
  readonly item: Queued;
}

/** What waits of one tree, or of none ('' as its root). */
interface Lane {
  readonly root: string;
  readonly waiting: Arrived[];
  busy: boolean;
}

export function createJournal(options: JournalOptions): Journal {
  const { pool, trees, ids, clock, bus, keepCurrent } = options;
  const live = createLiveSessions();
  trees.onLost(live.forgetTree);
  const commits = createCommits(options, live);
  const lanes = new Map<string, Lane>();
  /** Not yet in a lane, in the order they came. */
  const incoming: (Arrived & { readonly place: Place })[] = [];
  let arrived = 0;
  let flushes = 0;
  let scheduled = false;
  let placing = false;
  let delivering = false;

  function enqueue(place: Place, item: Queued): void {
    arrived += 1;
    incoming.push({ place, number: arrived, item });
    schedule();
  }
  function schedule(): void {
    if (scheduled) return;
    scheduled = true;
    setImmediate(() => {
      scheduled = false;
      void pump();
    });
  }

  async function pump(): Promise<void> {
    await intoLanes();
    while (flushes < MAX_FLUSHES) {
      const ready = [...lanes.values()].filter((lane) => !lane.busy && lane.waiting.length > 0);
      if (ready.length === 0) return;
      flushes += 1;
      for (const lane of ready) lane.busy = true;
      void flush(ready).finally(() => {
        flushes -= 1;
        for (const lane of ready) {
          lane.busy = false;
          if (lane.waiting.length === 0) lanes.delete(lane.root);
        }
        schedule();
      });
    }
  }

  async function intoLanes(): Promise<void> {
    if (placing) return;
    placing = true;
    try {
      for (let next = incoming[0]; next !== undefined; next = incoming[0]) {
        const { place, number, item } = next;
        const root = rootIn(place) ?? (await rootFound(place, item));
        incoming.shift();
        if (root === null) continue;
        const lane = lanes.get(root) ?? { root, waiting: [], busy: false };
        lanes.set(root, lane);
        lane.waiting.push({ number, item });
      }
    } finally {
      placing = false;
    }
  }
  /** Of what is known, '' for no tree. */
  function rootIn(place: Place): string | null {
    if (place === null) return '';
    if (place.by === 'root') return place.id;
    return place.by === 'session' ? live.rootOf(place.id) : null;
  }
  /** What belongs to nothing that is stored is of no tree, and is refused there. */
  async function rootFound(place: Place, item: Queued): Promise<string | null> {
    if (place === null || place.by === 'root') return '';
    for (let attempt = 1; ; attempt += 1) {
      try {
        const { rows } = await pool.send<{ root: string }>(ROOT_OF[place.by], [place.id]);
        return rows[0]?.root ?? '';
      } catch (error) {
        if (isTransient(error) && attempt < MAX_ATTEMPTS) {
          await pause(clock, AGAIN_MS);
          continue;
        }
        if (item.kind === 'batch') item.reject(journalFault(error));
        return null;
      }
    }
  }

  /** All that waits of these lanes, up to the first task of each. */
  async function flush(ready: readonly Lane[]): Promise<void> {
    const parts: Part[] = [];
    const run: Arrived[] = [];
    const tasks: QueuedTask[] = [];
    let room = MAX_BATCHES;
    for (const lane of ready) {
      const taken = lane.waiting.splice(0, lengthOfNextRun(lane.waiting, room));
      const items = taken.map(({ item }) => item);
      const batches = items.filter((item) => item.kind === 'batch');
      room -= batches.length;
      tasks.push(...items.filter((item) => item.kind === 'task'));
      run.push(...taken);
      if (batches.length > 0) parts.push({ root: lane.root, batches, outcomes: [] });
    }
    for (const part of parts) for (const { batch, drawn } of part.batches) draw(batch, drawn);
    const written = await commits.write(parts);
    run.sort((a, b) => a.number - b.number);
    deliver(() => publish(run, written));
    for (const task of tasks) await task.run();
  }

  function draw({ emit }: PreparedBatch, drawn: Drawn[]): void {
    for (const item of emit) if (item.kind === 'event') drawn.push({ at: clock.now(), id: ids.event() });
  }

  /** Whoever emits from within a subscriber is queued behind what is being delivered. */
  function deliver(work: () => void): void {
    delivering = true;
    try {
      work();
    } finally {
      delivering = false;
    }
  }
  function publish(run: readonly Arrived[], written: ReadonlyMap<QueuedBatch, Written>): void {
    for (const { effects } of written.values()) keepCurrent(effects);
    for (const { item } of run) {
      if (item.kind === 'transient') bus.publish([item]);
      else if (item.kind === 'batch') {
        const published = written.get(item)?.published;
        if (published === undefined) continue;
        if (published.length > 0) bus.publish(published);
        item.resolve(published.flatMap((each) => (each.kind === 'event' ? [each.event] : [])));
      }
    }
  }

  function inOrder<T>(place: Place, task: () => Promise<T>): Promise<T> {
    return new Promise((resolve, reject) => {
      const run = () => task().then(resolve, (error: unknown) => reject(journalFault(error)));
      enqueue(place, { kind: 'task', run });
    });
  }

  return {
    async commit(batch) {
      const prepared = prepareBatch(batch, options.trusted);
      return new Promise((resolve, reject) => {
        enqueue(placeOf(prepared), { kind: 'batch', batch: prepared, drawn: [], resolve, reject });
      });
    },
    transient(transient) {
      const item = { kind: 'transient', transient } as const;
      const root = live.rootOf(transient.session_id);
      const waits = root === null ? lanes.size > 0 : lanes.has(root) || lanes.has('');
      if (delivering || incoming.length > 0 || waits) enqueue({ by: 'session', id: transient.session_id }, item);
      else deliver(() => bus.publish([item]));
    },
    async purge(sessionId) {
      const gone = await inOrder({ by: 'session', id: sessionId }, () => purge(pool, trees, sessionId));
      for (const id of gone) live.forget(id);
      options.forget(gone);
      return gone.length;
    },
    prune: (cutoff, dryRun) => prune(pool, cutoff, dryRun),
    savePriceVersion: (row) => savePriceVersion(pool, clock, row),
  };
}

/** Up to the first task inclusive, and never more batches than one transaction takes. */
function lengthOfNextRun(queue: readonly Arrived[], room: number): number {
  let batches = 0;
  for (let i = 0; i < queue.length; i++) {
    const kind = queue[i]?.item.kind;
    if (kind === 'task') return i + 1;
    if (kind === 'batch' && ++batches >= Math.max(1, room)) return i + 1;
  }
  return queue.length;
}
