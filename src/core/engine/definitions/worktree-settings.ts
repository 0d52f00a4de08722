// The settings of worktrees of a workspace: the server's, and those of a file whose bytes a person has trusted (20 §2.2, §11).
import { describeWorkspaceSettings, readWorkspaceSettings } from '#core/policy/delegation/workspace-settings.ts';
import { WORKSPACE_SETTINGS_FILE, type WorktreeSettings } from '#protocol/file-change.ts';
import { err, ok, type Result } from '#protocol/result.ts';
import type { Runtime, Storage, Toolbox } from '../state/engine.ts';
import { findTrustFault } from './trusted-files.ts';

type SettingsEngine = Pick<Runtime, 'config'> & Pick<Storage, 'store'> & Pick<Toolbox, 'library'>;

/** A key of the trusted file wins over the server's. The error states why the file does not count, and the command that trusts it. */
export async function resolveWorktreeSettings(
  engine: SettingsEngine,
  workspace: string,
): Promise<Result<WorktreeSettings, string>> {
  const server = selectServerSettings(engine.config);
  const file = await engine.library.readText(workspace, WORKSPACE_SETTINGS_FILE);
  if (!file.ok && file.error === 'is missing') return ok(server);
  if (!file.ok) return err(`${WORKSPACE_SETTINGS_FILE} ${file.error}`);
  const own = readWorkspaceSettings(file.value.text, server);
  if (!own.ok) return err(`${WORKSPACE_SETTINGS_FILE} is not valid: ${own.error}`);
  if (describeWorkspaceSettings(own.value).length === 0) return ok({ ...server, ...own.value });
  const source = { path: WORKSPACE_SETTINGS_FILE, sha256: file.value.sha256 };
  const distrust = await findTrustFault(engine, workspace, source);
  if (distrust !== null) return err(distrust);
  return ok({ ...server, ...own.value });
}

function selectServerSettings({ delegation }: Runtime['config']): WorktreeSettings {
  const { worktree_copy, worktree_links, worktree_setup } = delegation;
  return { worktree_copy, worktree_links, worktree_setup };
}

/** What the workspace's file requests, trusted or not; empty without a file. */
export async function listSettingsWidenings(
  { config, library }: Pick<Runtime, 'config'> & Pick<Toolbox, 'library'>,
  workspace: string,
): Promise<readonly string[]> {
  const file = await library.readText(workspace, WORKSPACE_SETTINGS_FILE);
  if (!file.ok) return [];
  const settings = readWorkspaceSettings(file.value.text, selectServerSettings(config));
  if (!settings.ok) return [`is not valid: ${settings.error}`];
  return describeWorkspaceSettings(settings.value);
}
