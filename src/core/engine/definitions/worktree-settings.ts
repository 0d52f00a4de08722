// The settings of worktrees of a workspace: the server's, and those of a file whose bytes a person has trusted (20 §2.2, §11).
import { describeWorkspaceSettings, readWorkspaceSettings } from '#core/policy/delegation/workspace-settings.ts';
import { WORKSPACE_SETTINGS_FILE, type WorktreeSettings } from '#protocol/file-change.ts';
import { err, ok, type Result } from '#protocol/result.ts';
import type { Runtime, Storage, Toolbox } from '../state/engine.ts';

type SettingsEngine = Pick<Runtime, 'config'> & Pick<Storage, 'store'> & Pick<Toolbox, 'library'>;

/** A key of the trusted file wins over the server's. The error states why the file does not count, and the command that trusts it. */
export async function resolveWorktreeSettings(
  { config, store, library }: SettingsEngine,
  workspace: string,
): Promise<Result<WorktreeSettings, string>> {
  const server = selectServerSettings(config);
  const file = await library.readText(workspace, WORKSPACE_SETTINGS_FILE);
  if (!file.ok && file.error === 'is missing') return ok(server);
  if (!file.ok) return err(`${WORKSPACE_SETTINGS_FILE} ${file.error}`);
  const own = readWorkspaceSettings(file.value.text, server);
  if (!own.ok) return err(`${WORKSPACE_SETTINGS_FILE} is not valid: ${own.error}`);
  if (describeWorkspaceSettings(own.value).length === 0) return ok({ ...server, ...own.value });
  const trusted = await store.trustedFiles.digest(workspace, WORKSPACE_SETTINGS_FILE);
  const remedy = `Read it, then run: metis trust ${WORKSPACE_SETTINGS_FILE}`;
  if (trusted === null) return err(`${WORKSPACE_SETTINGS_FILE} is not trusted. ${remedy}`);
  if (trusted !== file.value.sha256)
    return err(`${WORKSPACE_SETTINGS_FILE} has changed since it was trusted. ${remedy}`);
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
