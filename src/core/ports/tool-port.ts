// The contract between the dispatcher and a tool (09 §1).

import type { ToolProblem } from '#protocol/api/server-bodies.ts';
import type { Awaitable } from '#protocol/async/awaitable.ts';
import type { Issue } from '#protocol/errors.ts';
import type { MemoryWrite } from '#protocol/event/session-events.ts';
import type { EventDraft } from '#protocol/event.ts';
import type { SessionId, ToolUseId, TurnId } from '#protocol/ids.ts';
import type { Skill } from '#protocol/prompt-parts.ts';
import type { ToolDefinition, ToolOutput } from '#protocol/tool.ts';
import type { Logger } from './logger.ts';
import type { MemoryChange, WorkspaceFiles } from './workspace.ts';

// Workers as a tool uses them, without access to sessions (00 §3 step 6).

/** A file that a call shares with a worker, as an approval request describes it (13 §5). */
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
  /** The details of the approval request: the definition as it would be saved. */
  describe(proposal: WorkerProposal): Promise<Readonly<Record<string, unknown>>>;
  make(proposal: WorkerProposal): Promise<ToolOutput>;
}

/** A worker as a model describes it, or the whole definition as a user wrote it. */
export type WorkerProposal = { readonly spec: Readonly<Record<string, unknown>> } | { readonly yaml: string };

export interface WorkerSpawner {
  /** Checks rules that the schema of `delegate` cannot express: references, a compiling `output_schema`. No effects. */
  check(input: Readonly<Record<string, unknown>>): Promise<readonly Issue[]>;
  /** The files that the worker would get. */
  shares(input: Readonly<Record<string, unknown>>): Promise<readonly SharedFile[]>;
  /**
   * Runs one worker to its end and returns what the planner sees (04 §4.2).
   * Never throws for a worker's failure; rejects with the signal's reason when the calling turn is cancelled.
   */
  spawn(input: Readonly<Record<string, unknown>>): Promise<ToolOutput>;
}

/** The background workers of the calling turn. Each throws `ToolError` for a worker that is none of them (20 §9). */
export interface WorkerControl {
  list(): Promise<ToolOutput>;
  /** Returns early when a person steers the turn or concludes it, and when the server stops. */
  wait(wanted: {
    /** Null = all. */
    readonly ids: readonly string[] | null;
    readonly for: 'any' | 'all';
    /** Null = no limit. */
    readonly seconds: number | null;
  }): Promise<ToolOutput>;
  message(id: string, text: string): Promise<ToolOutput>;
  conclude(id: string): Promise<ToolOutput>;
  cancel(id: string): Promise<ToolOutput>;
}

export type ToolInput = Readonly<Record<string, unknown>>;

/** Hashes of the file contents that this session last read or wrote, by workspace-relative path (20 §1). */
export interface FileKnowledge {
  /** Null = unknown: never read, or before a restart. */
  hash(path: string): string | null;
  recordRead(path: string, hash: string): void;
  recordWrite(path: string, hash: string): void;
}

/** The skills of a session. Both throw `ToolError('execution_error')` where there is none of the name, or a broken one. */
export interface SkillShelf {
  load(name: string): Promise<Skill>;
  /** Throws `ToolError('permission_denied')` for a path that leaves the skill's folder. */
  file(name: string, path: string): Promise<string>;
}

export interface ToolContext {
  readonly session_id: SessionId;
  readonly turn_id: TurnId;
  readonly tool_use_id: ToolUseId;
  /** The folder that commands run in: the workspace, or the worker's worktree (20 §2.2). */
  readonly workspace_path: string;
  /** Null for tools that do not require a workspace. */
  readonly files: WorkspaceFiles | null;
  readonly known: FileKnowledge;
  /** Cancellation and timeout. */
  readonly signal: AbortSignal;
  /** Null where this session may not delegate. */
  readonly spawner: WorkerSpawner | null;
  /** Null for a tool that does not manage workers. */
  readonly control: WorkerControl | null;
  /** Null for a tool that makes no workers. */
  readonly maker: WorkerMaker | null;
  /** The memory files of the workspace; null in a worker. */
  readonly memory: { change(change: MemoryChange): Promise<MemoryWrite> } | null;
  readonly skills: SkillShelf;
  readonly is_worker: boolean;
  /** The call's limit in seconds; null = none. An input such as `timeout_seconds` may only lower it. */
  readonly timeout_seconds: number | null;
  /** Commits an event of this session and turn at once. */
  emit(event: Pick<EventDraft, 'type' | 'payload'>): Promise<void>;
  readonly logger: Logger;
}

/** Created for each call. */
export interface Tool {
  readonly definition: ToolDefinition;
  /** The input as the tool's schema has it, of one that means the same; absent = as it is given. */
  plain?(input: ToolInput): ToolInput;
  /** Throws `ToolError` for a failure that the model may read; anything else is a bug and stays opaque. */
  execute(input: ToolInput, context: ToolContext): Promise<ToolOutput>;
  /**
   * Rules that a schema cannot express and that must hold before an approval is requested. No effects. Throws `ToolError` for a
   * failure that is none of the input's.
   */
  check?(input: ToolInput, context: ToolContext): Promise<readonly Issue[]>;
  /** Details of the call for an approval request, from a checked input; absent = the input itself. */
  preview?(input: ToolInput, context: ToolContext): Promise<Readonly<Record<string, unknown>>>;
  /** Problems of a YAML text that a user gives in place of the input; the tool then runs with `{yaml}`. Absent = the tool takes no YAML. */
  checkYaml?(yaml: string, context: ToolContext): Promise<readonly Issue[]>;
  /** Files that a call with this checked input shares. Each may need an approval before the call itself. */
  shares?(input: ToolInput, context: ToolContext): Promise<readonly SharedFile[]>;
  /** Ends what still runs; idempotent; false when it finished or never started. */
  cancel(): Promise<boolean>;
}

export type ToolFactory = () => Tool;

/** Tools by name: from here a call takes its definition, the check of its input and the work itself. */
export interface ToolSet {
  /** Sorted by name, byte order. */
  definitions(): readonly ToolDefinition[];
  definition(name: string): ToolDefinition | null;
  /** Validates against the tool's compiled schema: one issue per fault, `$` for the root, sorted by path. */
  validate(name: string, input: unknown): readonly Issue[];
  create(name: string): Tool;
}

/** Tools differ by workspace and are resolved at the start of every turn (09 §1, §11). */
export interface ToolRegistry {
  /** Every tool of a turn that starts now. A promise where servers of the workspace have to be started or listed first. */
  resolveTools(workspace: string): Awaitable<ToolSet>;
  /** The tools known so far, for callers that must neither start a server nor wait. */
  knownTools(workspace: string): ToolSet;
  /** Known problems of the workspace's MCP servers and their tools. */
  problems(workspace: string): readonly ToolProblem[];
  /** Starts what the tools of the workspace need, without waiting, and keeps it until the returned function is called. */
  hold(workspace: string): () => void;
  /** A set with these workers as tools beside its own. */
  withWorkers(toolset: ToolSet, workers: readonly ToolDefinition[]): ToolSet;
}

/** Compiles a schema a caller gave (01 §5); problems with their paths instead of a validator when it breaks the rule. */
export interface SchemaCompiler {
  compile(
    schema: unknown,
  ):
    | { readonly ok: true; readonly validate: (value: unknown) => readonly Issue[] }
    | { readonly ok: false; readonly problems: readonly Issue[] };
}
