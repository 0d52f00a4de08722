// A tool: its definition, what a call gets and what it gives back (09 §1).
import { z } from 'zod';
import type { SkillLoadedSchema } from './event/session-events.ts';
import type { ToolResultContent } from './message.ts';
import type { SideEffectsSchema } from './scalars.ts';

export const TOOL_NAME_PATTERN = /^[a-z][a-z0-9_]{0,63}$/;
/** The internal tool with which a worker asks its planner for more (04 §8). */
export const REQUEST_CONTEXT = '_request_context';

export const ToolCallStatusSchema = z.enum(['pending', 'succeeded', 'failed', 'cancelled']);
export type ToolCallStatus = z.infer<typeof ToolCallStatusSchema>;

/** The front doors to a worker (13 §1). */
export const EntrySchema = z.enum(['delegate', 'worker_tool', 'worker_call']);
/** Kinds of calls that one rule or one config key may cover (13 §7.1). */
export type ToolGroup = 'sandbox.read' | 'sandbox.write' | 'worker.call' | 'worker.create';

/** A JSON Schema (2020-12) with an object root. */
export type JsonSchema = Readonly<Record<string, unknown>>;

export interface ToolDefinition {
  readonly name: string;
  readonly description: string;
  readonly input_schema: JsonSchema;
  readonly side_effects: z.infer<typeof SideEffectsSchema>;
  readonly requires_workspace: boolean;
  /** Top-level input keys that hold paths, checked before the tool runs. */
  readonly path_fields: readonly string[];
  /** Null = the default of its class; 0 = exempt. */
  readonly timeout_seconds: number | null;
  // Traits, for the engine alone: models and clients do not see them. Absent = no.
  /** Works through a worker: it is handed a spawner, is never left behind, and settles after its delegation. */
  readonly spawns?: z.infer<typeof EntrySchema>;
  /** Makes workers of its own session tree: offered where delegation is, and only where it is switched on. */
  readonly creates_workers?: boolean;
  /** Manages the background workers of the calling turn: offered with `delegate`. */
  readonly manages_workers?: boolean;
  /** Starts when the calls before it in the same message have settled, and is settled before those behind it start. */
  readonly barrier?: boolean;
  /** Reads or writes files: a worker has it as its sandboxes allow. */
  readonly file_access?: 'read' | 'write';
  /** Calls that one rule, or one key of the configuration, may cover together (13 §7.1). */
  readonly group?: ToolGroup;
  /** Finds its own work again when it is started a second time after a restart, whatever its effects. */
  readonly restartable?: boolean;
  /** Its valid input ends a worker's turn as the request for more context (04 §8). */
  readonly requests_context?: boolean;
  /** Runs the command in this field of its input, which may change files that its output does not name. */
  readonly command_field?: string;
  /** Changes the memory file that this field of its input names. */
  readonly memory_field?: string;
  /** The use that its paths are checked for; absent = `write` for a tool that writes, else `read`. */
  readonly path_use?: 'read' | 'list' | 'write';
  /** No worker ever has it. */
  readonly planners_only?: boolean;
  /** Reads skills: the prompt of a session with this tool begins with their index. */
  readonly loads_skills?: boolean;
}

export const ToolErrorClassSchema = z.enum([
  'timeout',
  'permission_denied',
  'not_found',
  'validation_error',
  'execution_error',
  'cancelled',
  'user_denied',
  'confirmation_timeout',
]);
export type ToolErrorClass = z.infer<typeof ToolErrorClassSchema>;

export interface ToolOutput {
  readonly content: readonly ToolResultContent[];
  /** false: the tool ran and reports a failure; the result is marked `is_error`. */
  readonly success: boolean;
  /** Lines of the server about the result: one block of their own behind `content`, which the tool's own text cannot forge. */
  readonly notes?: readonly string[];
  /** Not shown to the model and not put on events. */
  readonly metadata: Readonly<Record<string, unknown>> | null;
  /** Workspace-relative. */
  readonly files_modified: readonly string[] | null;
  /** Those of them that were not there before; absent = none. */
  readonly files_created?: readonly string[];
  readonly command_executed: string | null;
  /** The results of background workers that it holds (20 §9). */
  readonly deliveries?: readonly string[];
  /** The skill whose body this is: its `skill.loaded` is stored with the call's end, so that it is there once. */
  readonly skill_loaded?: Omit<z.infer<typeof SkillLoadedSchema>, 'triggered_by_tool_use_id'>;
}

/** A failure the model may read: raised on purpose by a tool (09 §7). Anything else thrown is a bug and stays opaque. */
export class ToolError extends Error {
  readonly error_class: ToolErrorClass;
  /** Text produced before it failed, shown after the message. */
  readonly partial: string | null;

  constructor(error_class: ToolErrorClass, message: string, partial: string | null = null) {
    super(message);
    this.error_class = error_class;
    this.partial = partial;
    this.name = 'ToolError';
  }
}

/** A plain successful answer. */
export function toolText(text: string, rest: Partial<Omit<ToolOutput, 'content'>> = {}): ToolOutput {
  return toolTexts(text === '' ? [] : [text], rest);
}

/** An answer of several text blocks, none of them empty. */
export function toolTexts(texts: readonly string[], rest: Partial<Omit<ToolOutput, 'content'>> = {}): ToolOutput {
  return {
    content: texts.map((text) => ({ type: 'text', text })),
    success: true,
    metadata: null,
    files_modified: null,
    command_executed: null,
    ...rest,
  };
}
