// Reads the files of a call once: the bytes that are approved are the bytes that are sent (13 §5).
import { checkImages } from '#core/policy/context/image-blocks.ts';
import {
  createAttachment,
  findCountFault,
  findPolicyFault,
  MAX_ATTACHED_BYTES,
} from '#core/policy/workers/attachment-policy.ts';
import { type ConfinedPath, PathEscape, type WorkspaceFiles } from '#core/ports/workspace.ts';
import type { AttachedFile } from '#protocol/delegate.ts';
import type { ContentBlock, ImageBlock } from '#protocol/message.ts';
import { err, ok, type Result } from '#protocol/result.ts';
import type { SessionRecord } from '#protocol/session.ts';
import { sha256Hex } from '#protocol/text/canonical-json.ts';
import { ToolError } from '#protocol/tool.ts';
import {
  type AttachmentPolicy,
  type Sandbox,
  STANDARD_POLICY,
  type WorkerDefinition,
} from '#protocol/worker-definition.ts';
import type { WorkspaceAccess } from '../state/engine.ts';

type Owner = Pick<SessionRecord, 'workspace_path' | 'tree_path' | 'worker_definition'>;

interface Attachments {
  readonly files: readonly (AttachedFile & { readonly absolute: string })[];
  /** One block per file, in order. */
  readonly blocks: readonly ContentBlock[];
}

/**
 * Reads all files, or none. Throws `ToolError`: `permission_denied` for a path outside the workspace, `execution_error`
 * for a missing file, `validation_error` for a file that a policy refuses.
 * @param caller owner of the files; its policy counts where its definition has one
 */
export async function readAttachments(
  engine: Pick<WorkspaceAccess, 'workspaces'>,
  caller: Owner,
  callee: WorkerDefinition,
  paths: readonly string[],
): Promise<Attachments> {
  if (paths.length === 0) return { files: [], blocks: [] };
  const inbound = callee.attachment_policy ?? STANDARD_POLICY;
  const own = caller.worker_definition?.definition;
  const policies: readonly Policy[] = [
    ...(own?.attachment_policy ? [{ policy: own.attachment_policy, whose: `the caller '${own.name}'` }] : []),
    { policy: inbound, whose: `'${callee.name}'` },
  ];
  requirePolicies(policies, ({ policy, whose }) => findCountFault(paths.length, policy, whose));
  const files = openCallerFiles(engine, caller);
  const confined: ConfinedPath[] = [];
  for (const path of paths) confined.push(await files.resolve(path, 'read'));
  const seen = new Set<string>();
  const twice = confined.find(({ absolute }) => seen.size === seen.add(absolute).size);
  if (twice) throw new ToolError('validation_error', `${twice.given}: is attached twice`);
  // Checked before a large file is read.
  const listed = confined.map(({ given }) => ({ path: given, bytes: 0 }));
  requirePolicies(policies, ({ policy, whose }) => findPolicyFault(listed, policy, whose));
  let left = Math.min(MAX_ATTACHED_BYTES, ...policies.map(({ policy }) => policy.max_total_bytes));
  const read: { readonly path: ConfinedPath; readonly data: Buffer }[] = [];
  for (const path of confined) {
    const data = await readAtMost(files, path, left + 1);
    read.push({ path, data });
    left -= data.length;
    if (left >= 0) continue;
    const soFar = read.map(({ path, data }) => ({ path: path.given, bytes: data.length }));
    requirePolicies(policies, ({ policy, whose }) => findPolicyFault(soFar, policy, whose));
    throw new ToolError('validation_error', `more than ${MAX_ATTACHED_BYTES} bytes of attachments, no call takes more`);
  }
  const made = read.map(({ path, data }) => {
    const attachment = createAttachment(path.given, data);
    if (!attachment.ok) throw new ToolError('validation_error', attachment.error);
    const { block, media_type } = attachment.value;
    const { given, relative: file, absolute } = path;
    return { block, file: { path: given, file, absolute, bytes: data.length, media_type, sha256: sha256Hex(data) } };
  });
  const blocks = made.map(({ block }) => block);
  const fault = checkImages(blocks.filter((block): block is ImageBlock => block.type === 'image'));
  if (fault !== null) throw new ToolError('validation_error', `the message ${fault}; attach fewer`);
  return { files: made.map(({ file }) => file), blocks };
}

/** Reads the same files again for a worker that was created before a restart and never ran. The error names a changed file. */
export async function rereadAttachments(
  engine: Pick<WorkspaceAccess, 'workspaces'>,
  caller: Owner,
  files: readonly AttachedFile[],
): Promise<Result<readonly ContentBlock[], string>> {
  const blocks: ContentBlock[] = [];
  const access = engine.workspaces.files(getFilesRoot(caller));
  for (const { path, file, bytes, sha256 } of files) {
    try {
      const data = await readAtMost(access, await access.resolve(file, 'read'), bytes + 1);
      const attachment = createAttachment(path, data);
      if (sha256Hex(data) !== sha256 || !attachment.ok) return err(`${path} has changed since it was attached`);
      blocks.push(attachment.value.block);
    } catch (error) {
      if (!(error instanceof ToolError)) throw error;
      return err(`${path} cannot be read any more: ${error.message}`);
    }
  }
  return ok(blocks);
}

/** Opens a caller's sandboxes; a caller without sandboxes has the whole workspace as one. */
function openCallerFiles(engine: Pick<WorkspaceAccess, 'workspaces'>, owner: Owner) {
  const { worker_definition: named } = owner;
  const root = getFilesRoot(owner);
  const whole: Sandbox = {
    name: 'workspace',
    path: '.',
    mode: 'ro',
    allowed_suffixes: [],
    // Here the policies are the limit, and their errors name the policy.
    max_bytes: Number.MAX_SAFE_INTEGER,
  };
  return engine.workspaces.sandboxes(root, named === null ? [whole] : Object.values(named.definition.sandboxes));
}

interface Policy {
  readonly policy: AttachmentPolicy;
  /** The owner of a policy, as a message names it. */
  readonly whose: string;
}

function requirePolicies(policies: readonly Policy[], findFault: (policy: Policy) => string | null): void {
  for (const policy of policies) {
    const fault = findFault(policy);
    if (fault !== null) throw new ToolError('validation_error', fault);
  }
}

async function readAtMost(files: WorkspaceFiles, path: ConfinedPath, bytes: number): Promise<Buffer> {
  const parts: Buffer[] = [];
  let size = 0;
  for await (const part of files.chunks(path)) {
    parts.push(part);
    size += part.length;
    if (size >= bytes) break;
  }
  return Buffer.concat(parts, size).subarray(0, bytes);
}

// The files that a session's tools may reach: the workspace, or the sandboxes of its definition (13 §4).

/** The root of a session's file tools and commands: its worktree, or the workspace (20 §2.2). */
export function getFilesRoot({
  tree_path,
  workspace_path,
}: Pick<SessionRecord, 'tree_path' | 'workspace_path'>): string {
  return tree_path ?? workspace_path;
}

export function openSessionFiles(engine: Pick<WorkspaceAccess, 'workspaces'>, session: Owner): WorkspaceFiles {
  const { worker_definition: named } = session;
  const root = getFilesRoot(session);
  if (named === null) return engine.workspaces.files(root);
  return engine.workspaces.sandboxes(root, Object.values(named.definition.sandboxes));
}

/** Whether file tools might write a path of the caller's workspace (09 §8). Throws `PathEscape` where a link there leads out. */
export async function isPathWritable(
  { workspaces }: Pick<WorkspaceAccess, 'workspaces'>,
  root: string,
  path: string,
): Promise<boolean> {
  try {
    await workspaces.files(root).resolve(path, 'write');
    return true;
  } catch (error) {
    if (error instanceof ToolError && !(error instanceof PathEscape)) return false;
    throw error;
  }
}
