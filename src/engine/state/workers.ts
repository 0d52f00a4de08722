// What the rooms below a delegation are handed of it: a worker for a tool that spawns one, and the end of those left open.
import type { ToolUseBlock } from '../../domain/message.ts';
import type { Cancelled } from '../../kernel/abort.ts';
import type { ToolUseId, TurnId } from '../../kernel/ids.ts';
import type { WorkerSpawner } from '../../ports/spawner.ts';
import type { TurnRun } from './turn-run.ts';

export interface Workers {
  /** The spawner of one tool call; null where the session is too deep to delegate (04 §11). */
  spawner(run: TurnRun, call: ToolUseBlock): WorkerSpawner | null;
  /**
   * Ends the workers of a turn that have no running loop, and closes their delegations. Doing it twice changes nothing.
   * @param only the delegation of this tool call, when the others are to stay
   */
  closeUnder(turnId: TurnId, reason: Cancelled, only?: ToolUseId): Promise<void>;
}
