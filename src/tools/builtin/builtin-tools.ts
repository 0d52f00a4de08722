// The built-in tools with what they need from outside (09 §13).
import { rgPath } from '@vscode/ripgrep';
import type { ToolFactory } from '#core/ports/tool-port.ts';
import type { TemporaryFolders } from '#core/ports/workspace.ts';
import type { Clock } from '#protocol/clock.ts';
import type { Config } from '#protocol/config.ts';
import { createSandbox, type Sandbox } from '../sandbox/bubblewrap.ts';
import { delegate, requestContext, workerCall, workerCreate, workers } from './delegation-tools.ts';
import { editFile, writeFile } from './edit-files.ts';
import { grep } from './grep.ts';
import { listFiles } from './list-files.ts';
import { memoryAdd, memoryConsolidate, memoryReplace, skillLoad } from './memory-and-skills.ts';
import { readFile } from './read-file.ts';
import { shell } from './shell.ts';

export interface BuiltinOptions {
  /** The ripgrep program; default: the one that is installed with the server. */
  readonly ripgrep?: string;
  /** The environment of commands, as `shellEnvironment` makes it. */
  readonly shellEnv: Readonly<Record<string, string>>;
  readonly shell: Config['tools']['shell'];
  /** The server's data folder, hidden from sandboxed commands. */
  readonly dataFolder?: string;
  /** Holds the worktrees of workers, hidden from sandboxed commands but for their own. */
  readonly worktreesFolder?: string | null;
  /** Whether the server starts what a workspace's `.mcp.json` names. */
  readonly projectFiles?: boolean;
  /** Absent = the commands of workers share the temporary folder of the server. */
  readonly temporary?: Pick<TemporaryFolders, 'open'>;
  readonly clock: Clock;
}

/** The sandbox of commands, as configured; null = none. */
export function createCommandSandbox(
  options: Pick<BuiltinOptions, 'shell' | 'shellEnv' | 'dataFolder' | 'worktreesFolder' | 'projectFiles'>,
): Sandbox | null {
  if (options.shell.sandbox === 'off') return null;
  return createSandbox({
    network: options.shell.sandbox_network,
    dataFolder: options.dataFolder ?? null,
    worktreesFolder: options.worktreesFolder ?? null,
    projectFiles: options.projectFiles === true,
    env: options.shellEnv,
  });
}

/** One factory per tool, ready to be registered. */
export function builtinTools(options: BuiltinOptions): ToolFactory[] {
  const { shellEnv: env, clock } = options;
  const sandbox = createCommandSandbox(options);
  return [
    readFile,
    writeFile,
    editFile,
    listFiles,
    grep({ ripgrep: options.ripgrep ?? rgPath }),
    shell({ env, sandbox, temporary: options.temporary ?? null, clock }),
    memoryAdd,
    memoryReplace,
    memoryConsolidate,
    skillLoad,
    delegate,
    requestContext,
    workerCreate,
    workerCall,
    workers,
  ];
}
