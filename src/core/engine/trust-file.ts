// A person trusts the bytes of a file that widens what runs without a question, or takes that back (20 §11).
import type { TrustedFileInfo } from '#protocol/api/trust.ts';
import { isoTime } from '#protocol/clock.ts';
import { AppError, validationError } from '#protocol/errors.ts';
import { listWorkerWidenings } from './definitions/session-workers.ts';
import { openWorkspace } from './session/new-session.ts';
import type { Engine } from './state/engine.ts';

/** Until callers have names. */
const ANY_CALLER = 'user';

/**
 * Every file that is trusted or waits for it, by path; with `path` that file alone, whatever it is, with its content.
 * Throws `not_found` (workspace, file) or `workspace_not_allowed`.
 */
export async function listTrust(
  engine: Engine,
  workspace: string,
  path: string | null,
): Promise<readonly TrustedFileInfo[]> {
  const root = await openWorkspace(engine, workspace);
  const widenings = await collectWidenings(engine, root);
  if (path !== null) {
    const file = await readFile(engine, root, path);
    return [{ ...(await describeFile(engine, root, path, widenings)), content: file.text }];
  }
  const stored = await engine.store.trustedFiles.list(root);
  const paths = new Set([...stored.map((file) => file.path), ...widenings.keys()]);
  return Promise.all([...paths].sort().map((file) => describeFile(engine, root, file, widenings)));
}

/** Throws `validation_error` where the file is not what was read, `not_found` (workspace, file) or `workspace_not_allowed`. */
export async function trustFile(
  engine: Engine,
  { workspace_path, path, sha256 }: { readonly workspace_path: string; readonly path: string; readonly sha256: string },
): Promise<TrustedFileInfo> {
  const root = await openWorkspace(engine, workspace_path);
  const file = await readFile(engine, root, path);
  if (file.sha256 !== sha256)
    throw validationError([
      { path: 'sha256', message: `is not that of ${path}, which is ${file.sha256}: read the file again` },
    ]);
  const trusted = { workspace_path: root, path, sha256, trusted_by: ANY_CALLER, trusted_at: engine.clock.now() };
  await engine.journal.commit({ writes: [{ kind: 'trusted_file.put', file: trusted }], emit: [] });
  return describeFile(engine, root, path, await collectWidenings(engine, root));
}

/** Throws `not_found` (workspace, trust) or `workspace_not_allowed`. */
export async function untrustFile(engine: Engine, workspace: string, path: string): Promise<void> {
  const root = await openWorkspace(engine, workspace);
  if ((await engine.store.trustedFiles.digest(root, path)) === null)
    throw new AppError('not_found', `${path} is not trusted in ${root}`, { resource: 'trust' });
  await engine.journal.commit({
    writes: [{ kind: 'trusted_file.remove', workspace_path: root, path }],
    emit: [],
  });
}

/** What each file of the workspace's workers asks for, by path. */
async function collectWidenings(engine: Engine, root: string): Promise<ReadonlyMap<string, readonly string[]>> {
  const toolset = engine.tools.knownTools(root);
  const byPath = new Map<string, string[]>();
  for (const worker of await engine.library.list(root)) {
    const widens = listWorkerWidenings(engine, worker, toolset).map((one) => `worker ${worker.name}: ${one.widens}`);
    if (widens.length > 0)
      for (const { path } of worker.sources) byPath.set(path, [...(byPath.get(path) ?? []), ...widens]);
  }
  return byPath;
}

async function describeFile(
  engine: Engine,
  root: string,
  path: string,
  widenings: ReadonlyMap<string, readonly string[]>,
): Promise<TrustedFileInfo> {
  const stored = (await engine.store.trustedFiles.list(root)).find((file) => file.path === path) ?? null;
  const current = await engine.library.read(root, path);
  const sha256 = current.ok ? current.value.sha256 : null;
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

async function readFile(engine: Engine, root: string, path: string) {
  const read = await engine.library.read(root, path);
  if (!read.ok) throw new AppError('not_found', `${path} in ${root} ${read.error}`, { resource: 'file' });
  return read.value;
}
