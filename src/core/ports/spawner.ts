// How a tool asks for a worker, without knowing sessions (00 §3 step 6).

import type { Issue } from '#protocol/errors.ts';
import type { ToolOutput } from '#protocol/tool.ts';

/** A file that a call hands on to somebody else, as a person is asked about it (13 §5). */
export interface SharedFile {
  /** As the caller names it. */
  readonly path: string;
  /** Real absolute path. */
  readonly absolute: string;
  readonly bytes: number;
  readonly sha256: string;
  readonly target_worker: string;
}

/** Makes workers of the calling session's tree (13 §6.3). */
export interface WorkerMaker {
  /** Everything that is wrong with a proposal; '' = the whole. */
  check(proposal: WorkerProposal): Promise<readonly Issue[]>;
  /** What a person is asked about: the definition as it would be saved. */
  describe(proposal: WorkerProposal): Promise<Readonly<Record<string, unknown>>>;
  make(proposal: WorkerProposal): Promise<ToolOutput>;
}

/** What a model says of a worker, or the whole definition as a person wrote it. */
export type WorkerProposal = { readonly spec: Readonly<Record<string, unknown>> } | { readonly yaml: string };

export interface WorkerSpawner {
  /** What the schema of `delegate` cannot express: references, a compiling `output_schema`. No effects. */
  check(input: Readonly<Record<string, unknown>>): Promise<readonly Issue[]>;
  /** The files that the worker would get. */
  shares(input: Readonly<Record<string, unknown>>): Promise<readonly SharedFile[]>;
  /**
   * Runs one worker to its end and returns what the planner sees (04 §4.2).
   * Never throws for a worker's failure; rejects with the signal's reason when the calling turn is cancelled.
   */
  spawn(input: Readonly<Record<string, unknown>>): Promise<ToolOutput>;
}
