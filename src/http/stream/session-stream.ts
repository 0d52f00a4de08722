// One subscription to one session: snapshot or replay, then live events, each exactly once (06 §4.3, §4.4).
import type { Published } from '#core/ports/live-bus.ts';
import type { Store } from '#core/ports/store-reader.ts';
import type { Timer } from '#protocol/clock.ts';
import type { Delta, Transient } from '#protocol/delta.ts';
import { AppError } from '#protocol/errors.ts';
import { CATALOG } from '#protocol/event.ts';
import type { SessionId } from '#protocol/ids.ts';
import type { Person } from '#protocol/people/person.ts';
import { canSee } from '#protocol/people/rights.ts';
import type { SessionRecord } from '#protocol/session.ts';
import { notFound } from '../error-handler.ts';
import { hideOrigin } from '../visibility.ts';
import {
  ackFrame,
  BURST,
  type CloseReason,
  createFrame,
  eventFrame,
  MAX_BACKLOG_BYTES,
  PATIENCE_MS,
  type Sink,
  type Snapshot,
  snapshotFrame,
  transientFrame,
} from './frames.ts';
import type { Member, StreamHub } from './hub.ts';
import { ALWAYS_FROM_WORKERS, createScope, getSessionId, getType, getWorkerLink, type Scope } from './scope.ts';
import type { Subscription } from './subscription.ts';

interface Appended extends Transient {
  readonly delta: Extract<Delta, { type: 'message.appended' }>;
}

interface KeptMessages {
  /** Passes over what is no `message.appended`. */
  keep(transient: Transient): void;
  isEmpty(): boolean;
  /** Those kept so far, in their order. */
  take(): AsyncIterable<Transient>;
}

/** Without their content, which is read again: a client may take long to catch up. */
function createKeptMessages(messages: Pick<Store['messages'], 'get'>): KeptMessages {
  let kept: Appended[] = [];
  return {
    keep(transient) {
      const { delta } = transient;
      if (delta.type !== 'message.appended') return;
      const message = { ...delta.payload.message, content: [] };
      kept.push({ ...transient, delta: { ...delta, payload: { message } } });
    },
    isEmpty: () => kept.length === 0,
    async *take() {
      const now = kept;
      kept = [];
      for (const { delta, ...rest } of now) {
        const message = await messages.get(delta.payload.message.id);
        if (message !== null) yield { ...rest, delta: { ...delta, payload: { message } } };
      }
    },
  };
}

const PAGE_ROWS = 500;

export interface SessionStream {
  /** True when the session has ended and nothing would be sent: there is no point in opening. */
  isIdle(): Promise<boolean>;
  /** Sends the acknowledgement and all that was missed, then goes live. Resolves at that point. */
  run(sink: Sink): Promise<void>;
  /** The client is gone, or was never let in. Idempotent. */
  leave(): void;
}

/**
 * Registers the subscription, so that nothing is missed from now on, and finds its place in the journal.
 * Throws `not_found` or `cursor_expired`.
 */
export async function openSessionStream(
  hub: StreamHub,
  id: string,
  { person, ...wanted }: Subscription & { readonly person: Person },
): Promise<SessionStream> {
  const record = await hub.store.sessions.record(id);
  if (record === null || !canSee(person, record)) throw notFound('session', id);
  const stream = new Stream(hub, record, { ...wanted, person });
  try {
    await stream.place();
  } catch (error) {
    stream.leave();
    throw error;
  }
  return stream;
}

class Stream implements SessionStream, Member {
  private readonly hub: StreamHub;
  private readonly session: SessionRecord;
  private readonly wanted: Subscription & { readonly person: Person };
  private readonly scope: Scope;
  /** Catalog types asked for; null = all. */
  private readonly journalled: readonly string[] | null;
  private isInTree: (sessionId: string) => boolean = () => false;
  private sink: Sink | null = null;
  private snapshot: Snapshot | null = null;
  private cursor = '';
  private live = false;
  private gone = false;
  /** The session has ended; nothing of it follows. */
  private ended = false;
  /** Something to send was committed while a page was being read: the page may not hold it. */
  private dirty = false;
  /** Set while commits were missed. Resolves when the hub has loaded the sessions that those commits may have created. */
  private known: Promise<void> | null = null;
  private readonly appended: KeptMessages;
  /** Open messages whose beginning was sent, whatever types the client subscribed to. */
  private readonly begun = new Set<string>();
  /** Characters of the largest frame so far. */
  private largest = 0;
  /** Monotonic time since which more than `MAX_BACKLOG_BYTES` wait; null when they do not. */
  private fullSince: number | null = null;
  /** Looks at what waits when the client's time is over: nothing may be sent to it until then. */
  private patience: Timer | null = null;

  constructor(hub: StreamHub, session: SessionRecord, wanted: Subscription & { readonly person: Person }) {
    this.hub = hub;
    this.session = session;
    this.wanted = wanted;
    this.scope = createScope(session.id, session.root_session_id, wanted.include_worker_sessions);
    this.appended = createKeptMessages(hub.store.messages);
    this.journalled = wanted.types === null ? null : [...wanted.types].filter((type) => type in CATALOG);
  }

  /** First the registration, then every read: what a read is too early for arrives by the bus. */
  async place(): Promise<void> {
    const { hub, session, wanted } = this;
    const { sessions } = hub.store;
    this.isInTree = await hub.join(session.root_session_id, this);
    await this.scope.load(sessions);
    if (wanted.snapshot) {
      const stored = await hub.store.snapshot(session.id, wanted.include_worker_sessions);
      this.snapshot = stored && { ...stored, session: await hideOrigin(hub.store, wanted.person, stored.session) };
      this.cursor = this.snapshot?.snapshot_at_event_id ?? '';
    } else {
      this.cursor = await findStart(hub, session.root_session_id, wanted.since);
    }
    const now = await sessions.record(session.id);
    if (now === null || (wanted.snapshot && this.snapshot === null)) throw notFound('session', session.id);
    this.ended ||= now.ended_at !== null;
  }

  async isIdle(): Promise<boolean> {
    return this.ended && this.snapshot === null && (await this.readMissed(1)).length === 0;
  }

  async run(sink: Sink): Promise<void> {
    this.sink = sink;
    // Where nothing was asked for the stream begins after the newest event: a client can resume before it saw one.
    const { snapshot, since } = this.wanted;
    sink.send(ackFrame({ ...this.wanted, since: snapshot ? since : this.cursor || null }));
    if (this.snapshot !== null) {
      sink.send(snapshotFrame(this.snapshot));
      this.snapshot = null;
      await sink.flush();
    }
    await this.catchUp(sink);
  }

  private async catchUp(sink: Sink): Promise<void> {
    while (!this.gone) {
      this.dirty = false;
      if (this.known !== null) await this.reloadState(this.known);
      if (this.gone) return;
      const rows = await this.readMissed(PAGE_ROWS);
      if (this.gone) return;
      for (const { event, payload_json } of rows) {
        sink.send(eventFrame(event, payload_json));
        this.cursor = event.id;
      }
      for await (const transient of this.appended.take()) {
        if (this.gone) return;
        sink.send(transientFrame(transient, this.session.root_session_id));
      }
      // No await between here and the switch: what is published later finds the stream live.
      // And none goes live while it has a large page to read, which would make it look slow.
      const read = rows.length < PAGE_ROWS && sink.backlog() <= MAX_BACKLOG_BYTES;
      if (read && !this.dirty && this.appended.isEmpty()) return this.goLive(sink);
      await sink.flush();
    }
  }

  offer(item: Published): void {
    const session = getSessionId(item);
    const type = getType(item);
    const link = getWorkerLink(item);
    if (link !== null) this.scope.join(link.session, link.parent);
    if (type === 'session.ended' && session === this.session.id) this.ended = true;
    if (this.scope.shows(session, type) && this.canFollow(item) && this.isSubscribed(type)) {
      // The end of a message that the client knows is sent at once, even while it catches up: no page contains it.
      if (this.live || type === 'message.complete') this.push(item);
      else if (item.kind === 'event') this.dirty = true;
      else this.appended.keep(item.transient);
    }
    if (this.ended && this.live) this.close('session_ended');
  }

  gap(known: Promise<void>): void {
    this.known = known;
    this.dirty = true;
    const { sink } = this;
    if (!this.live || sink === null || this.gone) return;
    this.live = false;
    this.catchUp(sink).catch((err: unknown) => {
      this.hub.log.error({ err, session_id: this.session.id }, 'a stream could not catch up');
      this.close('internal_error');
    });
  }

  close(reason: CloseReason): void {
    if (this.gone) return;
    this.leave();
    this.sink?.close(reason);
  }

  leave(): void {
    this.gone = true;
    this.patience?.cancel();
    this.hub.leave(this.session.root_session_id, this);
  }

  private isSubscribed(type: string): boolean {
    const { types } = this.wanted;
    return types === null || types.has(type);
  }

  /** Whether the client can make something of it: the end of a message needs its beginning. */
  private canFollow(item: Published): boolean {
    if (item.kind === 'event') return true;
    const { type, payload } = item.transient.delta;
    if (type === 'message.start' && this.live) this.begun.add(payload.message_id);
    return type !== 'message.complete' || this.begun.delete(payload.message_id);
  }

  /** What the missed commits may have changed beside their events. */
  private async reloadState(known: Promise<void>): Promise<void> {
    const { hub, session } = this;
    await known;
    await this.scope.load(hub.store.sessions);
    const now = await hub.store.sessions.record(session.id);
    if (this.known === known) this.known = null;
    if (now === null) this.close('session_purged');
    else this.ended ||= now.ended_at !== null;
  }

  private async readMissed(limit: number) {
    const { cursor, journalled: types } = this;
    if (types?.length === 0) return [];
    return await this.hub.store.events.listRaw({
      session_id: this.session.id,
      include_workers: this.wanted.include_worker_sessions,
      worker_types: ALWAYS_FROM_WORKERS,
      types,
      after: cursor === '' ? null : cursor,
      until: null,
      limit,
    });
  }

  /** From here on events are sent as they arrive; messages that are being streamed are sent first. */
  private goLive(sink: Sink): void {
    this.live = true;
    const inScope = (id: string) => this.isInTree(id) && this.scope.shows(id, 'message.start');
    for (const transient of this.hub.bus.openMessages(inScope)) {
      if (!this.canFollow({ kind: 'transient', transient }) || !this.isSubscribed('message.start')) continue;
      sink.send(transientFrame(transient, this.session.root_session_id));
    }
    if (this.ended) this.close('session_ended');
  }

  private push(item: Published): void {
    const { sink } = this;
    if (sink === null || this.gone) return;
    if (item.kind === 'event' && item.event.id <= this.cursor) return;
    if (item.kind === 'event') this.cursor = item.event.id;
    const frame = createFrame(item, this.session.root_session_id);
    this.largest = Math.max(this.largest, frame.text.length);
    sink.send(frame);
    this.cutIfSlow();
  }

  /** Cuts the client off when it has fallen behind. */
  private cutIfSlow(): void {
    const { sink, hub } = this;
    if (sink === null || this.gone || !this.live) return;
    const backlog_bytes = sink.backlog();
    if (!this.isBehind(backlog_bytes)) return;
    hub.log.warn({ session_id: this.session.id, backlog_bytes }, 'slow client cut off');
    this.leave();
    sink.terminate();
  }

  /** One frame may be above the limit: who is sent it is not behind before it had the time to read it. */
  private isBehind(backlogBytes: number): boolean {
    if (backlogBytes <= MAX_BACKLOG_BYTES) {
      this.fullSince = null;
      return false;
    }
    const now = this.hub.clock.monotonic();
    this.fullSince ??= now;
    this.patience ??= this.hub.clock.after(PATIENCE_MS + 1, () => {
      this.patience = null;
      this.cutIfSlow();
    });
    return now - this.fullSince > PATIENCE_MS || backlogBytes > BURST * Math.max(MAX_BACKLOG_BYTES, this.largest);
  }
}

/** Where a stream without snapshot begins. Throws `cursor_expired` (02 §5). */
async function findStart({ store }: StreamHub, root: SessionId, since: string | null): Promise<string> {
  const pruned = (await store.events.prunedThrough(root)) ?? '';
  const newest = (await store.events.newestId(root)) ?? '';
  const [, top = ''] = [pruned, newest].sort();
  if (since === null) return top;
  if (since < pruned) {
    throw new AppError('cursor_expired', 'events after this cursor have been pruned; subscribe with snapshot: true');
  }
  if (since > top) {
    throw new AppError('cursor_expired', 'this cursor is above the newest event; subscribe with snapshot: true');
  }
  return since;
}
