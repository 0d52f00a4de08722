// Sandboxes: named folders of the workspace, and nothing outside of them (13 §4).
import { stat } from 'node:fs/promises';
import { hasSuffix, normaliseSandboxPath } from '#core/policy/workers/read-definition.ts';
import type { ConfinedPath, PathUse, WorkspaceFiles } from '#core/ports/workspace.ts';
import { ToolError } from '#protocol/tool.ts';
import type { Sandbox } from '#protocol/worker-definition.ts';
import { childPath, formatPath } from './confined-files.ts';
import { createFolder, folderPrefix } from './descriptors.ts';

/** A sandbox of this name on the workspace itself accepts paths without a sandbox name. */
const UNNAMED = 'workspace';
const ALL = '.';

/** A path with the sandbox that it lies in; null for the list of all of them. */
interface Boxed extends ConfinedPath {
  readonly box: Sandbox | null;
}

/** @param files of the workspace, which confine and protect as ever */
export function createSandboxFiles(root: string, files: WorkspaceFiles, given: readonly Sandbox[]): WorkspaceFiles {
  const boxes = given.map((box) => ({ ...box, path: normaliseSandboxPath(box.path) ?? box.path }));
  const named = new Map(boxes.map((box) => [box.name, box]));
  const requireSandbox = (path: ConfinedPath): Sandbox => {
    const { box } = path as Boxed;
    if (box) return box;
    throw new ToolError('execution_error', `not a regular file: ${path.given}`);
  };

  async function resolve(given: string, use: PathUse): Promise<Boxed> {
    const plain = normalizePath(given);
    if (plain === null) throw escapeError(given, boxes);
    if (plain === '' && use === 'list') return { given: ALL, absolute: root, relative: ALL, box: null };
    const [first = '', ...rest] = plain.split('/');
    const own = named.get(first);
    const unnamed = named.get(UNNAMED);
    if (own !== undefined) return resolveInside(own, rest.join('/'), { given, use });
    if (unnamed?.path !== ALL)
      throw new ToolError(
        'permission_denied',
        `unknown_sandbox: '${formatPath(given)}' must begin with ${listSandboxes(boxes)}`,
      );
    return resolveInside(unnamed, plain, { given, use });
  }

  async function resolveInside(
    box: Sandbox,
    inner: string,
    { given, use }: { readonly given: string; readonly use: PathUse },
  ): Promise<Boxed> {
    if (use === 'write' && box.mode !== 'rw') {
      const writable = boxes.filter(({ mode }) => mode === 'rw');
      const choice = writable.length === 0 ? 'none may be written to' : `write to ${listSandboxes(writable)}`;
      throw new ToolError('permission_denied', `read_only_sandbox: '${box.name}' is only read; ${choice}`);
    }
    const top = await confineInSandbox(files, box.path, { given, use: 'list', boxes });
    const path = inner === '' ? top : await confineInSandbox(files, `${box.path}/${inner}`, { given, use, boxes });
    const within = path.absolute === top.absolute || path.absolute.startsWith(`${top.absolute}/`);
    if (!within) throw escapeError(given, boxes);
    const relative = path.absolute.slice(top.absolute.length + 1);
    // Both the name that was given and the file that it leads to.
    if (use !== 'list') for (const name of [relative, inner]) refuseSuffix(box, name);
    return { ...path, given: relative === '' ? box.name : `${box.name}/${relative}`, box };
  }

  async function refuseLarge(path: ConfinedPath): Promise<void> {
    const size = await stat(path.absolute).then(
      (found) => found.size,
      () => 0,
    );
    if (size > requireSandbox(path).max_bytes) throw tooLarge(path, size);
  }
  const tooLarge = (path: ConfinedPath, bytes: number) =>
    new ToolError(
      'execution_error',
      `file_too_large: ${path.given} has ${bytes} bytes, at most ${requireSandbox(path).max_bytes} are allowed in '${requireSandbox(path).name}'`,
    );

  return {
    root,
    roots: boxes.map((box) => ({ prefix: `${box.name}/`, absolute: `${folderPrefix(root)}${box.path}` })),
    binary_hint: '; pass it as an attachment to a worker',
    resolve,
    async readFile(path, limitBytes) {
      await refuseLarge(path);
      return files.readFile(path, Math.min(limitBytes ?? Number.POSITIVE_INFINITY, requireSandbox(path).max_bytes));
    },
    async *chunks(path) {
      await refuseLarge(path);
      let bytes = 0;
      for await (const data of files.chunks(path)) {
        bytes += data.length;
        if (bytes > requireSandbox(path).max_bytes) throw tooLarge(path, bytes);
        yield data;
      }
    },
    hash: (path, signal) => files.hash(path, signal),
    async entries(path) {
      if ((path as Boxed).box === null) return boxes.map(({ name }) => ({ name, kind: 'directory' as const }));
      return files.entries(path);
    },
    async below(folder, entry) {
      const { box } = folder as Boxed;
      if (box === null) return resolve(entry.name, 'list').catch(hideToolError);
      if (entry.kind !== 'directory' && !hasAllowedSuffix(box, entry.name)) return null;
      // The target of a link is checked before it is listed.
      if (entry.kind === 'other') return resolve(`${folder.given}/${entry.name}`, 'read').catch(hideToolError);
      const inner = childPath(folder, entry);
      if (files.readable(inner.relative)) return { ...inner, box };
      return null;
    },
    async write(path, data) {
      const bytes = typeof data === 'string' ? Buffer.byteLength(data) : data.length;
      if (bytes > requireSandbox(path).max_bytes) throw tooLarge(path, bytes);
      await files.write(path, data);
    },
    exclusive: (path, fn) => files.exclusive(path, fn),
    readable(path) {
      const [name = '', ...rest] = path.split('/');
      const box = named.get(name);
      return box !== undefined && hasAllowedSuffix(box, path) && files.readable(joinPath(box.path, rest.join('/')));
    },
  };
}

/** Creates roots of writable sandboxes; roots of read-only sandboxes must exist. */
export async function openSandboxes(root: string, files: WorkspaceFiles, boxes: readonly Sandbox[]): Promise<void> {
  for (const box of boxes) {
    const problem = await openSandbox(root, files, box).catch((error: unknown) => {
      if (error instanceof ToolError) return error.message;
      throw error;
    });
    if (problem !== null) throw new ToolError('execution_error', `sandbox_unavailable: '${box.name}': ${problem}`);
  }
}

async function openSandbox(root: string, files: WorkspaceFiles, { path, mode }: Sandbox): Promise<string | null> {
  const top = await files.resolve(path, 'list');
  const found = await stat(top.absolute).catch(() => null);
  if (found !== null) {
    if (found.isDirectory()) return null;
    return 'is no folder';
  }
  if (mode === 'ro') return 'does not exist';
  await createFolder(root, top.relative);
  return null;
}

/** Without `./` and with `/` only; '' = the list of sandboxes; null = not a sandbox path. */
function normalizePath(given: string): string | null {
  const path = given.replaceAll('\\', '/');
  if (path === '' || path.startsWith('/') || path.startsWith('~') || path.includes('\0')) return null;
  if (/^[A-Za-z]:/.test(path)) return null;
  return path
    .split('/')
    .filter((part) => part !== '' && part !== '.')
    .join('/');
}

async function confineInSandbox(
  files: WorkspaceFiles,
  path: string,
  { given, use, boxes }: { readonly given: string; readonly use: PathUse; readonly boxes: readonly Sandbox[] },
): Promise<ConfinedPath> {
  try {
    return await files.resolve(path, use);
  } catch (error) {
    if (!(error instanceof ToolError) || error.error_class !== 'permission_denied') throw error;
    const [, reason] = /(is protected.*)$/.exec(error.message) ?? [];
    if (reason) throw new ToolError('permission_denied', `Path '${formatPath(given)}' ${reason}`);
    throw escapeError(given, boxes);
  }
}

function refuseSuffix(box: Sandbox, path: string): void {
  if (hasAllowedSuffix(box, path)) return;
  const kinds = box.allowed_suffixes.map((suffix) => (suffix === '' ? 'names without a dot' : suffix)).join(', ');
  throw new ToolError('permission_denied', `suffix_not_allowed: '${box.name}' holds ${kinds}`);
}

function hasAllowedSuffix({ allowed_suffixes }: Sandbox, path: string): boolean {
  return allowed_suffixes.length === 0 || hasSuffix(path.slice(path.lastIndexOf('/') + 1), allowed_suffixes);
}

function hideToolError(error: unknown): null {
  if (error instanceof ToolError) return null;
  throw error;
}

function escapeError(given: string, boxes: readonly Sandbox[]): ToolError {
  return new ToolError('permission_denied', `path_escape: '${formatPath(given)}' is not below ${listSandboxes(boxes)}`);
}

function listSandboxes(boxes: readonly Sandbox[]): string {
  if (boxes.length === 0) return 'any sandbox: there is none';
  return boxes.map(({ name }) => name).join(', ');
}

function joinPath(folder: string, inner: string): string {
  if (folder === ALL) return inner;
  return `${folder}/${inner}`;
}
