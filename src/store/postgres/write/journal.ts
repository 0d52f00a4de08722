// The only writer of a node: one transaction per flush, one numbered commit per tree; then publication (16 §3).
import { type PreparedBatch, prepareBatch } from '#core/policy/journal/prepare.ts';
import type { Journal, Write } from '#core/ports/journal-writer.ts';
import type { LiveBus, Published } from '#core/ports/live-bus.ts';
import { sleep } from '#protocol/clock.ts';
import { SYSTEM_SESSION } from '#protocol/event.ts';
import { savePriceVersion } from '#store/write/appliers.ts';
import type { Effects } from '#store/write/transaction.ts';
import { MAX_AT_ONCE } from '../connection/at-once.ts';
import { isTransient, journalFault } from '../connection/faults.ts';
import {
  AGAIN_MS,
  type CommitOptions,
  createCommits,
  MAX_ATTEMPTS,
  type Part,
  type QueuedBatch,
  type Written,
} from './commits.ts';
import { type Drawn, MAX_OF_EVENTS } from './event-log.ts';
import { createLiveSessions } from './live-sessions.ts';
import { prune, purge } from './postgres-maintenance.ts';

// Finds the tree of a batch. Most batches name a session, some only a turn or a call (16 §3.1).

/** The reference by which the tree of a batch is found. */
type Place =
  | { readonly by: 'root' | keyof typeof ROOT_OF; readonly id: string }
  /** The batch belongs to no tree. */
  | null;

const VIA_SESSION = 'JOIN sessions s ON s.id =';
/** Statements that find the root session of an id. */
export const ROOT_OF = {
  session: 'SELECT root_session_id AS root FROM sessions WHERE id = ?',
  turn: `SELECT s.root_session_id AS root FROM turns t ${VIA_SESSION} t.session_id WHERE t.id = ?`,
  input: `SELECT s.root_session_id AS root FROM turn_inputs i ${VIA_SESSION} i.session_id WHERE i.id = ?`,
  delivery: `SELECT s.root_session_id AS root FROM deliveries e ${VIA_SESSION} e.session_id WHERE e.id = ?`,
  call: `SELECT s.root_session_id AS root FROM tool_calls c ${VIA_SESSION} c.session_id WHERE c.id = ?`,
  delegation: `SELECT s.root_session_id AS root FROM delegations d ${VIA_SESSION} d.parent_session_id WHERE d.tool_use_id = ?`,
  confirmation: 'SELECT root_session_id AS root FROM confirmations WHERE id = ?',
} as const;

export function findPlace({ writes, emit }: PreparedBatch): Place {
  for (const write of writes)
    if (write.kind === 'session.insert') return { by: 'root', id: write.session.root_session_id };
  for (const item of emit) {
    if (item.kind === 'event' && item.draft.session_id !== SYSTEM_SESSION) {
      return { by: 'session', id: item.draft.session_id };
    }
  }
  for (const write of writes) {
    const place = findPlaceInWrite(write);
    if (place !== null) return place;
  }
  return null;
}

function findPlaceInWrite(write: Write): Place {
  switch (write.kind) {
    case 'session.insert':
      return { by: 'root', id: write.session.root_session_id };
    case 'worker.insert':
    case 'worker.replace':
      return { by: 'root', id: write.worker.root_session_id };
    case 'turn.insert':
      return { by: 'session', id: write.turn.session_id };
    case 'message.insert':
      return { by: 'session', id: write.message.session_id };
    case 'checkpoint.insert':
      return { by: 'session', id: write.checkpoint.session_id };
    case 'tool_call.insert':
      return { by: 'session', id: write.call.session_id };
    case 'turn_input.insert':
      return { by: 'session', id: write.input.session_id };
    case 'delivery.insert':
      return { by: 'session', id: write.delivery.session_id };
    case 'delivery.claim':
    case 'delivery.deliver':
      return { by: 'delivery', id: write.id };
    case 'worktree.put':
      return { by: 'session', id: write.worktree.session_id };
    case 'attempt.put':
      return { by: 'session', id: write.attempt.worker_session_id };
    case 'delegation.insert':
      return { by: 'session', id: write.delegation.parent_session_id };
    case 'confirmation.insert':
      return { by: 'root', id: write.confirmation.root_session_id };
    case 'turn.interrupt':
    case 'turn.resume':
    case 'turn.request_conclusion':
    case 'turn.conclude':
    case 'turn.score':
      return { by: 'turn', id: write.turn_id };
    case 'turn_input.read':
      return { by: 'input', id: write.id };
    case 'tool_call.settle':
    case 'tool_call.answer':
      return { by: 'call', id: write.id };
    case 'delegation.interrupt':
    case 'delegation.resume':
    case 'delegation.end':
    case 'delegation.applied':
      return { by: 'delegation', id: write.tool_use_id };
    case 'confirmation.resolve':
      return { by: 'confirmation', id: write.id };
    case 'meta.set':
    case 'token.insert':
    case 'token.revoke':
    case 'audit.insert':
    case 'trusted_file.put':
    case 'trusted_file.remove':
    case 'idempotency.insert':
    case 'tree_cost.insert':
    case 'pattern.record':
    case 'pattern.score':
    case 'pattern.forget':
      return null;
    default:
      return { by: 'session', id: write.session_id };
  }
}

interface JournalOptions extends CommitOptions {
  /** Skips the check of event payloads against their schemas. */
  readonly trusted?: boolean;
  readonly bus: LiveBus;
  /** Updates the caches of decoded rows after the commit and before publication. */
  readonly keepCurrent: (effects: Effects) => void;
  /** Drops these sessions from the caches. */
  readonly forget: (sessions: readonly string[]) => void;
}

/** Statements of one transaction about its trees: beyond it the next one takes them, since those sent at once have a limit. */
const MAX_OF_TREES = MAX_AT_ONCE - MAX_OF_EVENTS;
/** Of a batch: its fence, and its writes. */
const FENCES = 1;
const STATEMENTS: Readonly<Partial<Record<Write['kind'], number>>> = {
  'turn.insert': 2,
  'turn.end': 2,
  'pattern.record': 3,
};
/**
 * One transaction of each kind at a time: what comes meanwhile is the next one. One with calls holds the rows of the day's
 * sums until it is on disk, and one with lessons has many: what has neither must not wait with them.
 */
const KINDS = ['calls', 'lessons', 'plain'] as const;
type Kind = (typeof KINDS)[number];
/** A task that runs alone, in its place among the batches of its tree. */
interface QueuedTask {
  readonly kind: 'task';
  readonly run: () => Promise<void>;
}
type Queued = QueuedBatch | QueuedTask | Extract<Published, { readonly kind: 'transient' }>;

/** The queue of one tree in order of arrival; root '' = batches without a tree. */
interface Lane {
  readonly root: string;
  readonly waiting: Queued[];
  busy: boolean;
}
/** The items of a lane that one flush writes. */
interface Run {
  readonly lane: Lane;
  readonly items: readonly Queued[];
}

function findKind({ waiting }: Lane): Kind {
  let kind: Kind = 'plain';
  for (const item of waiting) {
    if (item.kind !== 'batch') continue;
    for (const emitted of item.batch.emit)
      if (emitted.kind === 'event' && emitted.draft.type === 'llm.call_completed') return 'calls';
    if (item.batch.writes.some((write) => write.kind === 'pattern.record')) kind = 'lessons';
  }
  return kind;
}

export function createJournal(options: JournalOptions): Journal {
  const { pool, trees, ids, clock, bus, keepCurrent } = options;
  const live = createLiveSessions();
  trees.onLost(live.forgetTree);
  const commits = createCommits(options, live);
  const lanes = new Map<string, Lane>();
  /** Items whose tree is not known yet, in order of arrival. */
  const incoming: { readonly place: Place; readonly item: Queued }[] = [];
  const isFlushing = { calls: false, lessons: false, plain: false };
  let scheduled = false;
  let placing = false;
  let delivering = false;

  function enqueue(place: Place, item: Queued): void {
    incoming.push({ place, item });
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
    const ready: Record<Kind, Lane[]> = { calls: [], lessons: [], plain: [] };
    for (const lane of lanes.values()) if (!lane.busy && lane.waiting.length > 0) ready[findKind(lane)].push(lane);
    for (const kind of KINDS) startFlush(kind, ready[kind]);
  }
  function startFlush(kind: Kind, ready: readonly Lane[]): void {
    if (ready.length === 0 || isFlushing[kind]) return;
    isFlushing[kind] = true;
    const runs = takeRuns(ready);
    void flush(runs).finally(() => {
      isFlushing[kind] = false;
      for (const run of runs) finishRun(run);
      schedule();
    });
  }
  /** Its task runs outside of the flush: a purge takes long, and other trees must not wait for it. */
  function finishRun({ lane, items }: Run): void {
    const task = items.find((item) => item.kind === 'task');
    if (task === undefined) releaseLane(lane);
    else void task.run().finally(() => releaseLane(lane));
  }
  /** Behind the others, so that lanes that always have something leave room for each. */
  function releaseLane(lane: Lane): void {
    lane.busy = false;
    lanes.delete(lane.root);
    if (lane.waiting.length > 0) lanes.set(lane.root, lane);
    schedule();
  }
  /** The waiting items of these lanes, up to the first task of each; lanes that find no room wait for the next flush. */
  function takeRuns(ready: readonly Lane[]): Run[] {
    const runs: Run[] = [];
    let room = MAX_OF_TREES;
    for (const lane of ready) {
      if (room <= 0) break;
      const { length, statements } = measureNextRun(lane.waiting, room);
      room -= statements;
      lane.busy = true;
      runs.push({ lane, items: lane.waiting.splice(0, length) });
    }
    return runs;
  }

  async function intoLanes(): Promise<void> {
    if (placing) return;
    placing = true;
    try {
      for (let next = incoming[0]; next !== undefined; next = incoming[0]) {
        const { place, item } = next;
        const root = rootIn(place) ?? (await rootFound(place, item));
        incoming.shift();
        if (root === null) continue;
        const lane = lanes.get(root) ?? { root, waiting: [], busy: false };
        lanes.set(root, lane);
        lane.waiting.push(item);
      }
    } finally {
      placing = false;
    }
  }
  /** The root from cached sessions; '' = no tree. */
  function rootIn(place: Place): string | null {
    if (place === null) return '';
    if (place.by === 'root') return place.id;
    if (place.by === 'session') return live.findRoot(place.id);
    return null;
  }
  /** A batch whose reference is not stored gets no tree, and its write is refused. */
  async function rootFound(place: Place, item: Queued): Promise<string | null> {
    if (place === null || place.by === 'root') return '';
    for (let attempt = 1; ; attempt += 1) {
      try {
        const { rows } = await pool.send<{ root: string }>(ROOT_OF[place.by], [place.id]);
        return rows[0]?.root ?? '';
      } catch (error) {
        if (isTransient(error) && attempt < MAX_ATTEMPTS) {
          await sleep(clock, AGAIN_MS);
          continue;
        }
        if (item.kind === 'batch') item.reject(journalFault(error));
        return null;
      }
    }
  }

  async function flush(runs: readonly Run[]): Promise<void> {
    const parts: Part[] = [];
    for (const { lane, items } of runs) {
      const batches = items.filter((item) => item.kind === 'batch');
      if (batches.length > 0) parts.push({ root: lane.root, batches, outcomes: [], commit: null });
    }
    for (const part of parts) for (const { batch, drawn } of part.batches) draw(batch, drawn);
    const written = await commits.write(parts);
    for (const { effects } of written.values()) keepCurrent(effects);
    for (const run of runs) deliver(() => publish(run, written));
  }

  function draw({ emit }: PreparedBatch, drawn: Drawn[]): void {
    for (const item of emit) if (item.kind === 'event') drawn.push({ at: clock.now(), id: ids.event() });
  }

  /** A commit or delta from within a subscriber is queued until the current delivery has ended. */
  function deliver(work: () => void): void {
    delivering = true;
    try {
      work();
    } finally {
      delivering = false;
    }
  }
  /** Publishes a whole commit at once, with the deltas between its events. */
  function publish({ lane: { root }, items }: Run, written: ReadonlyMap<QueuedBatch, Written>): void {
    let group: Published[] = [];
    let commit: Written['commit'] = null;
    let committed: (() => void)[] = [];
    const send = () => {
      if (group.length > 0 || commit !== null) publishItems(root, group, commit);
      for (const resolve of committed) resolve();
      group = [];
      committed = [];
    };
    for (const item of items) {
      if (item.kind === 'transient') group.push(item);
      else if (item.kind === 'batch') {
        const done = written.get(item);
        if (done === undefined) continue;
        if (commit !== null && commit.seq !== done.commit?.seq) send();
        commit = done.commit;
        group.push(...done.published);
        const events = done.published.flatMap((each) => (each.kind === 'event' ? [each.event] : []));
        committed.push(() => item.resolve(events));
      }
    }
    send();
  }
  function publishItems(root: string, items: readonly Published[], commit: Written['commit']): void {
    if (root === '') bus.publish(items);
    else if (commit !== null) bus.publish(items, { root, ...commit, commit: true });
    else {
      const held = trees.get(root);
      // A lost tree is published by its new owner.
      if (held !== null) bus.publish(items, { root, epoch: held.epoch, seq: held.seq, commit: false });
    }
  }

  function enqueueTask<T>(place: Place, task: () => Promise<T>): Promise<T> {
    return new Promise((resolve, reject) => {
      const run = () => task().then(resolve, (error: unknown) => reject(journalFault(error)));
      enqueue(place, { kind: 'task', run });
    });
  }

  return {
    async commit(batch) {
      const prepared = prepareBatch(batch, options.trusted);
      return new Promise((resolve, reject) => {
        enqueue(findPlace(prepared), { kind: 'batch', batch: prepared, drawn: [], resolve, reject });
      });
    },
    publishDelta(transient) {
      const item = { kind: 'transient', transient } as const;
      const root = live.findRoot(transient.session_id);
      const waits = root === null || lanes.has(root) || lanes.has('');
      if (delivering || incoming.length > 0 || waits) enqueue({ by: 'session', id: transient.session_id }, item);
      else deliver(() => publishItems(root, [item], null));
    },
    async purge(sessionId) {
      const gone = await enqueueTask({ by: 'session', id: sessionId }, () => purge(pool, trees, sessionId));
      for (const id of gone) live.forget(id);
      options.forget(gone);
      return gone.length;
    },
    prune: (cutoff, dryRun) => prune(pool, cutoff, dryRun),
    savePriceVersion: (row) => pool.transaction(async (tx) => savePriceVersion(tx, row, clock.now())),
  };
}

/** Up to the first task inclusive, and until the batches fill the room; at least one item. */
function measureNextRun(
  queue: readonly Queued[],
  room: number,
): { readonly length: number; readonly statements: number } {
  let statements = 0;
  for (const [i, item] of queue.entries()) {
    if (item.kind === 'task') return { length: i + 1, statements };
    if (item.kind !== 'batch') continue;
    statements += countStatements(item.batch);
    if (statements >= room) return { length: i + 1, statements };
  }
  return { length: queue.length, statements };
}

function countStatements({ writes }: PreparedBatch): number {
  return writes.reduce((sum, { kind }) => sum + (STATEMENTS[kind] ?? 1), FENCES);
}
