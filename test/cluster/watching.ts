// Nodes in one process for tests of watching: journal, store and bus over the real services, and streams without sockets.
import { connect } from '@nats-io/transport-node';
import { onTestFinished } from 'vitest';
import { createPeople } from '#core/engine/state/people.ts';
import type { Sink } from '#http/stream/frames.ts';
import { createStreamHub } from '#http/stream/hub.ts';
import { openSessionStream } from '#http/stream/session-stream.ts';
import type { Subscription } from '#http/stream/subscription.ts';
import { type Clock, systemClock } from '#protocol/clock.ts';
import { defaultConfig } from '#protocol/config.ts';
import type { Delta, Transient } from '#protocol/delta.ts';
import type { EventDraft } from '#protocol/event.ts';
import { NAMELESS_ADMIN } from '#protocol/people/person.ts';
import type { SessionRecord } from '#protocol/session.ts';
import { createClusterBus } from '#store/bus/nats/cluster-bus.ts';
import { type Link, openLink } from '#store/bus/nats/link.ts';
import { frameKey, standings } from '#store/cluster/tree-claims.ts';
import { openSchema, type PostgresWorld } from '../store/postgres/world.ts';
import { NOON, recordingLogger } from '../store/suite/world.ts';
import { systemEvent } from '../support/drafts.ts';
import type { Parsed } from '../support/http.ts';
import { ownSchema, type Schema } from '../support/services.ts';
import { until } from '../support/until.ts';

export interface Watching {
  /** Every frame so far. */
  readonly frames: readonly Parsed[];
  /** Reasons for which it was ended. */
  readonly ended: readonly string[];
  /** Ids of the stored events so far. */
  ids(): string[];
  /** Deltas of this message, or of all, in the order they came. */
  deltas(messageId?: string): Delta[];
}

export interface WatchNode extends PostgresWorld {
  watch(session: SessionRecord, wanted?: Partial<Subscription>): Promise<Watching>;
  /** How often it asked how far trees have come. */
  readings(): number;
  /** Whether it is connected to NATS. */
  linked(): boolean;
}

export interface WatchNodeOptions {
  readonly nats: string | null;
  readonly leaseSeconds?: number;
  /** Of bus and streams. */
  readonly clock?: Clock;
}

export async function emptySchema(database: string): Promise<Schema> {
  const schema = await ownSchema(database);
  onTestFinished(() => schema.drop());
  return schema;
}

export async function watchNode(schema: Schema, name: string, options: WatchNodeOptions): Promise<WatchNode> {
  const { nats, leaseSeconds = 60, clock = systemClock } = options;
  let link: Link | null = null;
  let readings = 0;
  const world = await openSchema(schema.url, NOON, {
    name,
    leaseSeconds,
    bus: async ({ pool, store, trees, log }) => {
      link = nats === null ? null : openLink({ url: nats, name, clock: systemClock, log });
      const bus = createClusterBus({
        cluster: schema.name,
        link,
        key: await frameKey(pool.send),
        owns: trees.holds,
        standings: (roots) => {
          readings += 1;
          return standings(pool.send, roots);
        },
        store,
        clock,
        log,
      });
      trees.onLost(bus.forget);
      onTestFinished(() => bus.close());
      await until(() => link?.up() ?? true);
      return bus;
    },
  });
  const { store, bus } = world;
  const log = recordingLogger(world.logged);
  const people = createPeople({ config: defaultConfig('/nowhere'), store, clock, several: true });
  const hub = createStreamHub({ store, bus, clock, log, people, maxConnections: 1000 });
  onTestFinished(() => hub.close());
  return {
    ...world,
    readings: () => readings,
    linked: () => link?.up() ?? false,
    async watch(session, over = {}) {
      const frames: Parsed[] = [];
      const ended: string[] = [];
      const sink: Sink = {
        send: ({ text }) => void frames.push(JSON.parse(text)),
        backlog: () => 0,
        flush: async () => {},
        close: (reason) => void ended.push(reason),
        terminate: () => void ended.push('terminated'),
      };
      const wanted = { types: null, include_worker_sessions: false, since: null, snapshot: false, ...over };
      const stream = await openSessionStream(hub, session.id, { ...wanted, person: NAMELESS_ADMIN });
      onTestFinished(() => stream.leave());
      await stream.run(sink);
      const events = () => frames.filter(({ type }) => type === 'event').map(({ event }) => event);
      return {
        frames,
        ended,
        ids: () => events().flatMap(({ id }) => id ?? []),
        deltas: (messageId) =>
          events()
            .filter(({ transient, payload }) => transient && (payload.message_id ?? messageId) === messageId)
            .map(({ type, payload }) => ({ type, payload })),
      };
    },
  };
}

/** An event of no consequence. */
export const note = (session: SessionRecord, label: string): EventDraft =>
  systemEvent(label, { session_id: session.id });

export const start = (session: SessionRecord, message_id: string): Transient =>
  said(session, {
    type: 'message.start',
    payload: { message_id, role: 'assistant', model: 'anthropic:x', content: [], open_tool_inputs: [] },
  });
export const text = (session: SessionRecord, message_id: string, chunk: string): Transient =>
  said(session, { type: 'text.delta', payload: { message_id, content_block_index: 0, text: chunk } });
export function said(session: SessionRecord, delta: Delta): Transient {
  return { session_id: session.id, turn_id: null, timestamp: NOON, delta };
}

/** What a client holds of a message after these deltas. */
export function textAfter(deltas: readonly Delta[]): string {
  let held = '';
  for (const { type, payload } of deltas) {
    if (type === 'message.start')
      held = payload.content.map((block) => (block.type === 'text' ? block.text : '')).join('');
    else if (type === 'text.delta') held += payload.text;
  }
  return held;
}

/** Somebody who reaches NATS and nothing else. */
export async function stranger(url: string) {
  const nats = await connect({ servers: new URL(url).host });
  onTestFinished(() => nats.close());
  return nats;
}
