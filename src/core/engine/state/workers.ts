// What the rooms below a delegation are handed of it: a worker for a tool that spawns one, and the end of those left open.

import type { WorkerSpawner } from '#core/ports/spawner.ts';
import type { Cancelled } from '#protocol/abort.ts';
import type { SessionId, ToolUseId, TurnId } from '#protocol/ids.ts';
import type { ToolUseBlock } from '#protocol/message.ts';
import type { ToolDefinition } from '#protocol/tool.ts';
import type { TurnRun } from './turn-run.ts';

export type Entry = NonNullable<ToolDefinition['spawns']>;

export interface Workers {
  /** The spawner of one tool call, by the door it came in; null where the session is too deep to delegate (04 §11). */
  spawner(run: TurnRun, call: ToolUseBlock, entry: Entry): WorkerSpawner | null;
  /**
   * Ends the workers of a turn that have no running loop, and closes their delegations. Doing it twice changes nothing.
   * @param only the delegation of this tool call, when the others are to stay
   */
  closeUnder(turnId: TurnId, reason: Cancelled, only?: ToolUseId): Promise<void>;
  /** Takes the delegations of a tree up again that were interrupted and that no turn will. */
  resumeOutside(root: SessionId, only?: ToolUseId): Promise<void>;
}
