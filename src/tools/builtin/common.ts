// Parts that the built-in tools share: definitions, stale-file checks, text decoding, listing order (09 §13).
import { createHash } from 'node:crypto';
import type { ToolContext } from '#core/ports/tool-port.ts';
import type { ConfinedPath, WorkspaceFiles } from '#core/ports/workspace.ts';
import { type JsonSchema, type ToolDefinition, ToolError } from '#protocol/tool.ts';

type Given = Pick<ToolDefinition, 'name' | 'description' | 'input_schema' | 'side_effects'> & Partial<ToolDefinition>;

/** A definition with defaults: requires the workspace, paths in `path` and `paths`, the timeout of its class. */
export function defineTool(given: Given): ToolDefinition {
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

/** The files of a tool that requires the workspace. */
export function workspaceFiles(context: ToolContext): WorkspaceFiles {
  if (context.files === null) throw new Error('a workspace tool was called without a workspace');
  return context.files;
}

/** A check has no timeout: larger files are checked when the call runs. */
const MAX_CHECKED_BYTES = 4 * 1024 * 1024;
/** Whether a file that the session has never read may be changed. */
type Unread = 'allowed' | 'refused';

/** Runs the check of `refuseStale` before approval is requested, as far as possible. Throws `ToolError`. */
export async function checkStale(context: ToolContext, given: string, unread: Unread): Promise<void> {
  const files = workspaceFiles(context);
  const path = await files.resolve(given, 'write');
  if (unread === 'allowed' && context.known.hash(path.relative) === null) return;
  const data = await files.readFile(path, MAX_CHECKED_BYTES).catch((error: unknown) => {
    // The file is missing or too large.
    if (error instanceof ToolError) return null;
    throw error;
  });
  if (data !== null) refuseStale(context, path, { now: hashContent(data), unread });
}

/**
 * Throws if the file has changed since the session last read or wrote it: a write would undo that change (20 §1).
 * @param now hash of the file under its lock; null = there is none
 */
export function refuseStale(
  context: ToolContext,
  path: ConfinedPath,
  { now, unread }: { readonly now: string | null; readonly unread: Unread },
): void {
  const known = context.known.hash(path.relative);
  if (now === null || known === now || (known === null && unread === 'allowed')) return;
  if (known === null) throw new ToolError('execution_error', `you have not read it: ${path.given}; read it first`);
  throw new ToolError('execution_error', `changed since you read it: ${path.given}; read it again`);
}

/** SHA-256 of a content in hex, as `WorkspaceFiles.hash` has it. */
export function hashContent(data: string | Uint8Array): string {
  return createHash('sha256').update(data).digest('hex');
}

/** Text of bytes that must be UTF-8; a byte order mark stays. Throws `ToolError('execution_error')`. */
export function utf8Text(data: Uint8Array, path: string, hint = ''): string {
  try {
    return new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(data);
  } catch {
    throw notTextError(path, hint);
  }
}

/** @param hint what to do instead; '' = no hint */
export function notTextError(path: string, hint = ''): ToolError {
  return new ToolError('execution_error', `not valid UTF-8 text: ${path}${hint}`);
}

/** `cancel` of a tool that ends almost at once. */
export async function cancelNothing(): Promise<boolean> {
  return false;
}

// Order of names as their UTF-8 bytes, the order of every listing (09 §13).

/** Compares like the UTF-8 bytes would. */
export function compareBytes(a: string, b: string): number {
  // UTF-16 order differs from byte order only where surrogates meet the characters behind them.
  if (/[\ud800-\uffff]/.test(a) && /[\ud800-\uffff]/.test(b)) return Buffer.compare(Buffer.from(a), Buffer.from(b));
  if (a < b) return -1;
  if (a > b) return 1;
  return 0;
}

/** A sort key in the order of the UTF-8 bytes, for long lists. */
export function byteKey(text: string): string {
  if (/[\u0080-\uffff]/.test(text)) return Buffer.from(text).toString('latin1');
  return text;
}

// Folders that searches and recursive listings leave out: dependencies, builds, caches (09 §13).

export const PRUNED_FOLDERS: readonly string[] = [
  '.git',
  '__pycache__',
  '.venv',
  'venv',
  'node_modules',
  'dist',
  'build',
  '.mypy_cache',
  '.pytest_cache',
  '.ruff_cache',
  '.tox',
  'site',
  '.next',
  '.cache',
];
