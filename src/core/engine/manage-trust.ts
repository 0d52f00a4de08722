// Trusts the bytes of a file that lets more run without approval, or revokes that trust (20 §11).
import type { TrustedFileInfo } from '#protocol/api/approval-bodies.ts';
import { isoTime } from '#protocol/clock.ts';
import { AppError, validationError } from '#protocol/errors.ts';
import { WORKSPACE_SETTINGS_FILE } from '#protocol/file-change.ts';
import type { TrustedFile } from '#protocol/worker-definition.ts';
import { CHECKS_FILE } from '../policy/delegation/checks.ts';
import { listCheckWidenings } from './definitions/find-checks.ts';
import { listWorkerWidenings } from './definitions/find-workers.ts';
import { storeTrust } from './definitions/trusted-files.ts';
import { listSettingsWidenings } from './definitions/worktree-settings.ts';
import { resolveWorkspace } from './session/session-records.ts';
import type { Engine, Runtime, Toolbox } from './state/engine.ts';

/**
 * Every file that is trusted or waits for trust, by path. With `path` that file alone, of any kind, with its content
 * and the content that is trusted. Throws `not_found` (workspace, file) or `workspace_not_allowed`.
 */
export async function listTrust(
  engine: Engine,
  workspace: string,
  path: string | null,
): Promise<readonly TrustedFileInfo[]> {
  const root = await resolveWorkspace(engine, workspace);
  const widenings = await collectWidenings(engine, root);
  if (path !== null) {
    const { sha256, text } = await readFile(engine, root, path);
    const stored = await engine.store.trustedFiles.find(root, path);
    const info = describeFile({ path, sha256 }, stored, widenings);
    return [{ ...info, content: text, trusted_content: stored?.content ?? null }];
  }
  const stored = new Map((await engine.store.trustedFiles.list(root)).map((file) => [file.path, file]));
  const paths = [...new Set([...stored.keys(), ...widenings.keys()])].sort();
  return Promise.all(
    paths.map(async (file) => {
      const current = await engine.library.readText(root, file);
      const sha256 = current.ok ? current.value.sha256 : null;
      return describeFile({ path: file, sha256 }, stored.get(file) ?? null, widenings);
    }),
  );
}

/** Throws `validation_error` where the file differs from the one that was read, `not_found` (workspace, file) or `workspace_not_allowed`. */
export async function trustFile(
  engine: Engine,
  { workspace_path, path, sha256 }: { readonly workspace_path: string; readonly path: string; readonly sha256: string },
): Promise<TrustedFileInfo> {
  const root = await resolveWorkspace(engine, workspace_path);
  const file = await readFile(engine, root, path);
  if (file.sha256 !== sha256)
    throw validationError([
      { path: 'sha256', message: `is not that of ${path}, which is ${file.sha256}: read the file again` },
    ]);
  await storeTrust(engine, root, { path, ...file });
  const stored = await engine.store.trustedFiles.find(root, path);
  return describeFile({ path, sha256 }, stored, await collectWidenings(engine, root));
}

/** Throws `not_found` (workspace, trust) or `workspace_not_allowed`. */
export async function untrustFile(engine: Engine, workspace: string, path: string): Promise<void> {
  const root = await resolveWorkspace(engine, workspace);
  if ((await engine.store.trustedFiles.digest(root, path)) === null)
    throw new AppError('not_found', `${path} is not trusted in ${root}`, { resource: 'trust' });
  await engine.journal.commit({
    writes: [{ kind: 'trusted_file.remove', workspace_path: root, path }],
    emit: [],
  });
}

/** The permissions that each worker file, the file of worktree settings and the file of checks request, by path. */
async function collectWidenings(
  engine: Runtime & Toolbox,
  root: string,
): Promise<ReadonlyMap<string, readonly string[]>> {
  const toolset = engine.tools.knownTools(root);
  const byPath = new Map<string, string[]>();
  for (const worker of await engine.library.list(root)) {
    const widens = listWorkerWidenings(engine, worker, toolset).map((one) => `worker ${worker.name}: ${one.widens}`);
    if (widens.length > 0)
      for (const { path } of worker.sources) byPath.set(path, [...(byPath.get(path) ?? []), ...widens]);
  }
  const settings = await listSettingsWidenings(engine, root);
  if (settings.length > 0) byPath.set(WORKSPACE_SETTINGS_FILE, [...settings]);
  const checks = await listCheckWidenings(engine, root);
  if (checks.length > 0) byPath.set(CHECKS_FILE, [...checks]);
  return byPath;
}

/** @param sha256 of the file as it is now; null = it is missing or cannot be read */
function describeFile(
  { path, sha256 }: { readonly path: string; readonly sha256: string | null },
  stored: TrustedFile | null,
  widenings: ReadonlyMap<string, readonly string[]>,
): TrustedFileInfo {
  return {
    path,
    trusted: sha256 !== null && sha256 === stored?.sha256,
    sha256,
    trusted_sha256: stored?.sha256 ?? null,
    trusted_by: stored?.trusted_by ?? null,
    trusted_at: stored === null ? null : isoTime(stored.trusted_at),
    widens: [...(widenings.get(path) ?? [])],
  };
}

async function readFile(engine: Pick<Toolbox, 'library'>, root: string, path: string) {
  const read = await engine.library.readText(root, path);
  if (!read.ok) throw new AppError('not_found', `${path} in ${root} ${read.error}`, { resource: 'file' });
  return read.value;
}
