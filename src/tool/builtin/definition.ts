// What the definitions of the built-in tools have in common (09 §13).
import { createHash } from 'node:crypto';
import { type JsonSchema, type ToolDefinition, ToolError } from '../../domain/tool.ts';
import type { ToolContext } from '../../ports/tool.ts';
import type { ConfinedPath, WorkspaceFiles } from '../../ports/workspace.ts';

type Given = Pick<ToolDefinition, 'name' | 'description' | 'input_schema' | 'side_effects'> & Partial<ToolDefinition>;

/** A definition with the usual rest: needs the workspace, its paths in `path` and `paths`, the timeout of its class. */
export function define(given: Given): ToolDefinition {
  return { requires_workspace: true, path_fields: ['path', 'paths'], timeout_seconds: null, ...given };
}

/** An object schema that allows nothing beside these properties. */
export function inputSchema(properties: Readonly<Record<string, JsonSchema>>, required: readonly string[]): JsonSchema {
  return { type: 'object', additionalProperties: false, properties, required };
}

/** The schema of a path. */
export function pathSchema(description: string): JsonSchema {
  return { type: 'string', minLength: 1, description };
}

/** The files of a tool that asked for the workspace. */
export function filesOf(context: ToolContext): WorkspaceFiles {
  if (context.files === null) throw new Error('a workspace tool was called without a workspace');
  return context.files;
}

/** Throws where the file is not what the session last read or wrote: its change would undo somebody else's (20 §1). */
export function refuseStale(context: ToolContext, path: ConfinedPath, now: string): void {
  const known = context.known.hash(path.relative);
  if (known === null || known === now) return;
  throw new ToolError('execution_error', `changed since you read it: ${path.given}; read it again`);
}

/** SHA-256 of a content in hex, as `WorkspaceFiles.hash` has it. */
export function hashOf(data: string | Uint8Array): string {
  return createHash('sha256').update(data).digest('hex');
}

/** Text of bytes that must be UTF-8; a byte order mark stays. Throws `ToolError('execution_error')`. */
export function utf8Text(data: Uint8Array, path: string): string {
  try {
    return new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(data);
  } catch {
    throw notText(path);
  }
}

export function notText(path: string): ToolError {
  return new ToolError('execution_error', `not valid UTF-8 text: ${path}`);
}

/** `cancel` of a tool that is done almost as soon as it started: there is nothing to end. */
export async function nothingToCancel(): Promise<boolean> {
  return false;
}
