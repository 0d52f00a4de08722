// What is checked before a call may run, and the context it runs in (09 §4 steps 3-4, 09 §1).

import { keyOfTool } from '#core/policy/tools/tool-names.ts';
import type { Tool, ToolContext, ToolSet } from '#core/ports/tool.ts';
import type { Issue } from '#protocol/errors.ts';
import type { ToolUseBlock } from '#protocol/message.ts';
import { type ToolDefinition, ToolError, type ToolErrorClass } from '#protocol/tool.ts';
import { createMaker } from '../definitions/make-worker.ts';
import { sessionFiles } from '../definitions/session-files.ts';
import { skillShelf } from '../prompt/skill-shelf.ts';
import type { Engine } from '../state/engine.ts';
import type { TurnRun } from '../state/turn-run.ts';

type Input = Readonly<Record<string, unknown>>;

/** Why a call ended without an answer of its tool. */
export interface Refusal {
  readonly error_class: ToolErrorClass;
  readonly text: string;
}

export interface InputFaults {
  /** `path: message` problems, of the schema or of the tool's own rules. */
  readonly issues: readonly Issue[];
  /** The first path that may not be used, with the field that holds it. */
  readonly outside: (Refusal & { readonly field: string }) | null;
}

/** What is wrong with an input: its form, else its paths, else what only the tool knows. Throws what `tool.check` throws. */
export async function inputFaults(
  toolset: ToolSet,
  tool: Tool,
  input: Input,
  context: ToolContext,
): Promise<InputFaults> {
  const issues = toolset.validate(tool.definition.name, input);
  if (issues.length > 0) return { issues, outside: null };
  const outside = await pathRefusal(tool, input, context);
  if (outside !== null || !tool.check) return { issues: [], outside };
  return { issues: await tool.check(input, context), outside: null };
}

async function pathRefusal(tool: Tool, input: Input, context: ToolContext): Promise<InputFaults['outside']> {
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
    files: definition.requires_workspace ? sessionFiles(engine, session) : null,
    known: engine.files.of(session.id),
    signal,
    spawner: definition.spawns ? engine.workers.spawner(run, call, definition.spawns) : null,
    maker: definition.creates_workers ? createMaker(engine, run, call) : null,
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

/** What the configuration says of this tool, else the tool itself, else its class; null = no limit. */
function limitSeconds(engine: Engine, { name, side_effects, timeout_seconds: own }: ToolDefinition): number | null {
  if (own === 0) return null;
  const { per_tool } = engine.config.tools.timeouts;
  const key = keyOfTool(per_tool, name);
  const seconds = (key === null ? undefined : per_tool[key]) ?? own ?? CLASS_TIMEOUT[side_effects];
  return seconds === 0 ? null : seconds;
}
