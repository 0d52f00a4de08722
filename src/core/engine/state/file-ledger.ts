// The file contents that sessions have seen, and the changes of each delegation: memory only (20 §1).

import type { FileKnowledge } from '#core/ports/tool-port.ts';
import type { DelegationRecord } from '#protocol/delegate.ts';
import type { SessionId, ToolUseId } from '#protocol/ids.ts';

/** Contents remembered over all sessions; the oldest are forgotten first, and must be read again. */
const MAX_KNOWN = 50_000;

export interface FileLedger {
  knowledge(session: SessionId): FileKnowledge;
  /** Starts counting the worker's reads and changes for its delegation and those above. */
  open(
    delegation: Pick<DelegationRecord, 'tool_use_id' | 'parent_turn_id' | 'parent_session_id'>,
    worker: SessionId,
  ): void;
  /** Those of the paths that another delegation of the same planner turn changed after this worker, or one below it, read them. */
  overlaps(worker: SessionId, paths: readonly string[]): readonly string[];
  /** Drops the memory of a session. */
  forget(session: SessionId): void;
}

interface OpenDelegation {
  readonly call: ToolUseId;
  /** The planner's turn; without one the planner's session. */
  readonly turn: string;
  readonly planner: SessionId;
  /** When each path was first read or changed by the worker or one below it. */
  readonly firstSeen: Map<string, number>;
}

export function createFileLedger(): FileLedger {
  /** Known contents by session and path; sessions in order of use. */
  const known = new Map<SessionId, Map<string, string>>();
  let size = 0;
  const delegations = new Map<SessionId, OpenDelegation>();
  /** The last change of each delegation, by planner turn and path. Kept while one of the turn's delegations is open. */
  const changes = new Map<string, Map<string, Map<ToolUseId, number>>>();
  let now = 0;

  function remember(session: SessionId, path: string, hash: string): void {
    const paths = known.get(session) ?? new Map<string, string>();
    known.delete(session);
    known.set(session, paths);
    if (!paths.has(path)) size += 1;
    paths.set(path, hash);
    while (size > MAX_KNOWN) dropOldest();
  }
  function dropOldest(): void {
    for (const [session, paths] of known) {
      for (const path of paths.keys()) {
        paths.delete(path);
        size -= 1;
        break;
      }
      if (paths.size === 0) known.delete(session);
      return;
    }
  }
  /** The worker's delegation and the delegations above it. */
  function* listEnclosing(session: SessionId): Generator<OpenDelegation> {
    for (let at = delegations.get(session); at !== undefined; at = delegations.get(at.planner)) yield at;
  }
  function recordRead(session: SessionId, path: string): void {
    now += 1;
    for (const { firstSeen } of listEnclosing(session)) if (!firstSeen.has(path)) firstSeen.set(path, now);
  }
  function recordChange(session: SessionId, path: string): void {
    for (const { turn, call } of listEnclosing(session)) {
      const paths = changes.get(turn) ?? new Map<string, Map<ToolUseId, number>>();
      const by = paths.get(path) ?? new Map<ToolUseId, number>();
      changes.set(turn, paths.set(path, by.set(call, now)));
    }
  }

  return {
    knowledge: (session) => ({
      hash: (path) => known.get(session)?.get(path) ?? null,
      recordRead(path, hash) {
        recordRead(session, path);
        remember(session, path, hash);
      },
      recordWrite(path, hash) {
        recordRead(session, path);
        recordChange(session, path);
        remember(session, path, hash);
      },
    }),
    open({ tool_use_id, parent_turn_id, parent_session_id }, worker) {
      delegations.set(worker, {
        call: tool_use_id,
        turn: parent_turn_id ?? parent_session_id,
        planner: parent_session_id,
        firstSeen: new Map(),
      });
    },
    overlaps(worker, paths) {
      const own = delegations.get(worker);
      if (own === undefined) return [];
      return paths.filter((path) => {
        const since = own.firstSeen.get(path) ?? now;
        const others = changes.get(own.turn)?.get(path) ?? [];
        return [...others].some(([call, when]) => call !== own.call && when > since);
      });
    },
    forget(session) {
      size -= known.get(session)?.size ?? 0;
      known.delete(session);
      const own = delegations.get(session);
      delegations.delete(session);
      if (own !== undefined && ![...delegations.values()].some((other) => other.turn === own.turn))
        changes.delete(own.turn);
    },
  };
}
