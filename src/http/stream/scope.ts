// Which sessions a stream sees: a session, its tree, and the workers that join it later (06 §7).

import type { Published } from '#core/ports/live-bus.ts';
import type { SessionReader } from '#core/ports/store-reader.ts';
import type { SessionId } from '#protocol/ids.ts';

/** Prompts of a worker reach every ancestor, whatever it subscribed to: otherwise they wait unseen. */
export const ALWAYS_FROM_WORKERS = ['tool.confirmation_requested', 'tool.confirmation_resolved'] as const;
const ALWAYS: ReadonlySet<string> = new Set(ALWAYS_FROM_WORKERS);

export function getSessionId(item: Published): string {
  if (item.kind === 'event') return item.event.session_id;
  return item.transient.session_id;
}
export function getType(item: Published): string {
  if (item.kind === 'event') return item.event.type;
  return item.transient.delta.type;
}

/** The link that a `session.created` of a worker carries; null for anything else. */
export function getWorkerLink(
  item: Published,
): { readonly session: string; readonly parent: string; root: string } | null {
  if (item.kind !== 'event' || item.event.type !== 'session.created') return null;
  const payload = item.event.payload as { parent_session_id: string | null; root_session_id: string };
  const { parent_session_id: parent, root_session_id: root } = payload;
  if (parent === null) return null;
  return { session: item.event.session_id, parent, root };
}

export interface Scope {
  /** Whether this session is the target or one of its descendants. */
  has(sessionId: string): boolean;
  /** Whether an item of this session and type is to be sent, its own type filter aside. */
  shows(sessionId: string, type: string): boolean;
  /** A worker was created; it joins when its parent is inside. */
  join(session: string, parent: string): void;
  /** Reads the descendants that exist already. */
  load(sessions: SessionReader): Promise<void>;
}

/** @param root the root of the target's tree. Items outside of that tree are never asked about. */
export function createScope(target: SessionId, root: string, includeWorkers: boolean): Scope {
  // All of a root's tree is its scope; only a worker's own stream has to know its descendants by name.
  const inside = target === root ? null : new Set<string>([target]);
  const has = (sessionId: string) => inside === null || inside.has(sessionId);
  return {
    has,
    shows: (sessionId, type) => sessionId === target || ((includeWorkers || ALWAYS.has(type)) && has(sessionId)),
    join(session, parent) {
      if (inside?.has(parent)) inside.add(session);
    },
    async load(sessions) {
      if (inside === null) return;
      for (const id of await sessions.descendants(target)) inside.add(id);
    },
  };
}
