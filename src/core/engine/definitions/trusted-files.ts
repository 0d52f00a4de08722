// Whether a file of a workspace counts: only while a person trusts its very bytes (20 §11). Checks, settings and workers ask here.
import type { WorkspaceText } from '#core/ports/workspace.ts';
import type { FileDigest } from '#protocol/worker-definition.ts';
import type { Runtime, Storage } from '../state/engine.ts';

/** The name of every caller, until callers have names. */
const ANY_CALLER = 'user';

/** Why these bytes do not count, with the command that trusts them; null when they are trusted. */
export async function findTrustFault(
  { store }: Pick<Storage, 'store'>,
  root: string,
  { path, sha256 }: FileDigest,
): Promise<string | null> {
  const trusted = await store.trustedFiles.digest(root, path);
  if (trusted === sha256) return null;
  const state = trusted === null ? 'is not trusted' : 'has changed since it was trusted';
  return `${path} ${state}. Read it, then run: metis trust ${path}`;
}

/** Trusts these bytes in place of what was trusted of the path before. */
export async function storeTrust(
  { journal, clock }: Pick<Storage, 'journal'> & Pick<Runtime, 'clock'>,
  root: string,
  { path, sha256, text }: WorkspaceText & Pick<FileDigest, 'path'>,
): Promise<void> {
  // PostgreSQL stores no character of code 0.
  const content = text.includes('\0') ? null : text;
  const trusted = { workspace_path: root, path, sha256, trusted_by: ANY_CALLER, trusted_at: clock.now(), content };
  await journal.commit({ writes: [{ kind: 'trusted_file.put', file: trusted }], emit: [] });
}
