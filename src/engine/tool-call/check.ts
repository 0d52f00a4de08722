// What is checked before a call may run, and the context it runs in (09 §4 steps 3-4, 09 §1).
import type { ToolUseBlock } from '../../domain/message.ts';
import { type ToolDefinition, ToolError, type ToolErrorClass } from '../../domain/tool.ts';
import type { Issue } from '../../kernel/errors.ts';
import type { Tool, ToolContext, ToolSet } from '../../ports/tool.ts';
import { skillShelf } from '../prompt/skill-shelf.ts';
import type { Engine } from '../state/engine.ts';
import type { TurnRun } from '../state/turn-run.ts';

type Input = Readonly<Record<string, unknown>>;

/** Why a call ended without an answer of its tool. */
export interface Refusal {
  readonly error_class: ToolErrorClass;
  readonly text: string;
}

/** `path: message` problems of an input, by schema first and then by the tool's own rules. */
export async function inputIssues(
  toolset: ToolSet,
  tool: Tool,
  input: Input,
  context: ToolContext,
): Promise<readonly Issue[]> {
  const issues = toolset.validate(tool.definition.name, input);
  if (issues.length > 0 || !tool.check) return issues;
  return tool.check(input, context);
}

/** The first path that may not be used, with the field that holds it; null when all may. */
export async function pathRefusal(
  tool: Tool,
  input: Input,
  context: ToolContext,
): Promise<(Refusal & { readonly field: string }) | null> {
  const { definition } = tool;
  if (!definition.requires_workspace || context.files === null) return null;
  const use = definition.path_use ?? (definition.side_effects === 'write' ? 'write' : 'read');
  for (const field of definition.path_fields) {
    const value = input[field];
    for (const path of Array.isArray(value) ? value : [value]) {
      if (typeof path !== 'string') continue;
      try {
        await context.files.resolve(path, use);
      } catch (error) {
        if (!(error instanceof ToolError)) throw error;
        return { field, error_class: error.error_class, text: error.message };
      }
    }
  }
  return null;
}

export function toolContext(
  engine: Engine,
  run: TurnRun,
  call: ToolUseBlock,
  { definition, signal }: { readonly definition: ToolDefinition; readonly signal: AbortSignal },
): ToolContext {
  const { session, turn } = run;
  return {
    session_id: session.id,
    turn_id: turn.id,
    tool_use_id: call.id,
    workspace_path: session.workspace_path,
    files: definition.requires_workspace ? engine.workspaces.files(session.workspace_path) : null,
    known: engine.files.of(session.id),
    signal,
    spawner: definition.spawns ? engine.workers.spawner(run, call) : null,
    memory: session.is_worker
      ? null
      : { change: (change) => engine.workspaces.changeMemory(session.workspace_path, change) },
    skills: skillShelf(engine, session),
    is_worker: session.is_worker,
    timeout_seconds: limitSeconds(engine, definition),
    emit: async (event) => {
      await engine.journal.commit({
        emit: [{ ...event, session_id: session.id, turn_id: turn.id, parent: run.call_event_id }],
      });
    },
    logger: engine.log.child({ session_id: session.id, turn_id: turn.id, tool_use_id: call.id }),
  };
}

const CLASS_TIMEOUT = { none: 60, read: 60, write: 60, execute: 600, network: 600 } as const;

/** Null = no limit. */
function limitSeconds(engine: Engine, definition: ToolDefinition): number | null {
  const seconds =
    definition.timeout_seconds ??
    engine.config.tools.timeouts.per_tool[definition.name] ??
    CLASS_TIMEOUT[definition.side_effects];
  return seconds === 0 ? null : seconds;
}
