// Calls a tool on a real temporary workspace, the way a dispatcher would once a call is allowed.
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { onTestFinished } from 'vitest';
import { createFileLedger } from '#core/engine/state/file-ledger.ts';
import { truncateOutput } from '#core/policy/tools/tool-output.ts';
import { type Logger, silentLogger } from '#core/ports/logger.ts';
import type { FileKnowledge, Tool, ToolContext, ToolFactory, WorkerSpawner } from '#core/ports/tool-port.ts';
import type { Workspaces } from '#core/ports/workspace.ts';
import type { SessionId, ToolUseId, TurnId } from '#protocol/ids.ts';
import { ToolError, type ToolOutput } from '#protocol/tool.ts';
import { createWorkspaceFiles } from '#tools/workspace/confined-files.ts';
import { createWorkerLibrary } from '#tools/workspace/worker-files.ts';
import { createWorkspaces } from '#tools/workspace/workspaces.ts';

/** A workspace with these files (`name: text`); a name ending in `/` is a folder. Removed when the test is over. */
export function workspace(files: Readonly<Record<string, string | Uint8Array>> = {}): string {
  const base = fs.realpathSync(fs.mkdtempSync(path.join(os.tmpdir(), 'metis-tool-')));
  onTestFinished(() => fs.rmSync(base, { recursive: true, force: true }));
  const root = path.join(base, 'workspace');
  fs.mkdirSync(root);
  for (const [name, text] of Object.entries(files)) {
    const file = path.join(root, name);
    fs.mkdirSync(name.endsWith('/') ? file : path.dirname(file), { recursive: true });
    if (!name.endsWith('/')) fs.writeFileSync(file, text);
  }
  return root;
}

export interface CallOptions {
  readonly signal?: AbortSignal;
  readonly spawner?: WorkerSpawner;
  readonly is_worker?: boolean;
  /** What the calling session knows of files; nothing unless told. */
  readonly known?: FileKnowledge;
  readonly workspaces?: Workspaces;
  readonly emit?: ToolContext['emit'];
}

/** The folders of a workspace that `workspace` made; `skills` beside it holds the global skills. */
export function workspacesOf(root: string, log: Logger = silentLogger): Workspaces {
  const beside = (name: string) => path.join(path.dirname(root), name);
  return createWorkspaces({
    globalRoutingPath: beside('routing.yaml'),
    globalSkillsPath: beside('skills'),
    library: createWorkerLibrary(log),
    log,
  });
}

export function contextOf(root: string, options: CallOptions = {}): ToolContext {
  const { signal, spawner, is_worker = false, known, workspaces = workspacesOf(root), emit = async () => {} } = options;
  const there = <T>(found: T | null): T => {
    if (found === null) throw new ToolError('execution_error', 'no skill');
    return found;
  };
  return {
    session_id: 'sess_01' as SessionId,
    turn_id: '01' as TurnId,
    tool_use_id: 'tu_01' as ToolUseId,
    workspace_path: root,
    files: createWorkspaceFiles(root),
    known: known ?? createFileLedger().knowledge('sess_01' as SessionId),
    signal: signal ?? new AbortController().signal,
    spawner: spawner ?? null,
    control: null,
    maker: null,
    memory: is_worker ? null : { change: (change) => workspaces.changeMemory(root, change) },
    skills: {
      load: async (name) => there(await workspaces.skill(root, name)),
      file: async (name, file) => there(await workspaces.skillFile(root, name, file)),
    },
    is_worker,
    timeout_seconds: null,
    emit,
    logger: silentLogger,
  };
}

export interface Call {
  readonly tool: Tool;
  readonly output: Promise<ToolOutput>;
}

export function call(factory: ToolFactory, root: string, input: Record<string, unknown>, options?: CallOptions): Call {
  const tool = factory();
  return { tool, output: tool.execute(input, contextOf(root, options)).then(truncateOutput) };
}

/** The text of a call. */
export async function run(
  factory: ToolFactory,
  root: string,
  input: Record<string, unknown>,
  options?: CallOptions,
): Promise<string> {
  return textOf(await call(factory, root, input, options).output);
}

export function textOf(output: ToolOutput): string {
  return output.content.map((block) => (block.type === 'text' ? block.text : `[${block.media_type}]`)).join('');
}

/** The error that a call ends with. */
export async function failure(output: Promise<unknown>): Promise<ToolError> {
  const error = await output.then(
    () => 'nothing was thrown',
    (e: unknown) => e,
  );
  if (!(error instanceof ToolError)) throw new Error(`expected a ToolError: ${error}`);
  return error;
}
