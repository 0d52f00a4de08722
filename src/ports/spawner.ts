// How a tool asks for a worker, without knowing sessions (00 §3 step 6).
import type { ToolOutput } from '../domain/tool.ts';
import type { Issue } from '../kernel/errors.ts';

export interface WorkerSpawner {
  /** What the schema of `delegate` cannot express: references, a compiling `output_schema`. No effects. */
  check(input: Readonly<Record<string, unknown>>): Promise<readonly Issue[]>;
  /**
   * Runs one worker to its end and returns what the planner sees (04 §4.2).
   * Never throws for a worker's failure; rejects with the signal's reason when the calling turn is cancelled.
   */
  spawn(input: Readonly<Record<string, unknown>>): Promise<ToolOutput>;
}
