// What a worker changed, as text: a patch, or the old and the new text of each file (20 §2.5).
import type { ChangedTexts, TextLimits } from '#core/ports/worktrees.ts';
import type { ChangedText, WorktreeRecord } from '#protocol/file-change.ts';
import { byteName, readableName } from './git.ts';
import type { Entry, OwnGit } from './repository.ts';
import { compareTrees, toFileChange } from './snapshot.ts';

type Trees = Pick<WorktreeRecord, 'base_tree' | 'result_tree'>;

/** The recorded changes as a unified diff, cut at `limitBytes`. */
export async function readDiff(
  own: OwnGit,
  { base_tree, result_tree }: Trees,
  limitBytes: number,
): Promise<{ readonly text: string; readonly truncated: boolean }> {
  const { prefix } = own.repository;
  if (result_tree === null) return { text: '', truncated: false };
  const relative = prefix === '' ? ['--no-relative'] : [`--relative=${readableName(prefix)}`];
  const args = ['diff-tree', '-r', '-p', '--no-renames', '--no-ext-diff', '--no-textconv', ...relative];
  const { out } = await own.run([...args, base_tree, result_tree], { maxBytes: limitBytes + 1, cut: true });
  const truncated = out.length > limitBytes;
  return { text: out.subarray(0, limitBytes).toString('utf8'), truncated };
}

const FILE_MODES: readonly string[] = ['100644', '100755'];

/** The texts of the changed files, in the order of their paths. */
export async function readTexts(
  own: OwnGit,
  { base_tree, result_tree }: Trees,
  limits: TextLimits,
): Promise<ChangedTexts> {
  if (result_tree === null) return { files: [], truncated: false };
  const { prefix } = own.repository;
  const changes = (await compareTrees(own, base_tree, result_tree)).filter(
    ({ name, before, after }) => isPlain(before) && isPlain(after) && byteName(readableName(name)) === name,
  );
  const oids = changes.flatMap(({ before, after }) => [before, after].flatMap((entry) => entry?.oid ?? []));
  const sizes = await readSizes(own, oids);
  const chosen: typeof changes = [];
  let left = limits.bytes;
  let truncated = false;
  for (const change of changes) {
    const both = [change.before, change.after].map((entry) =>
      entry === null ? 0 : (sizes.get(entry.oid) ?? Infinity),
    );
    if (both.some((size) => size > limits.bytes_per_text)) continue;
    const size = both.reduce((sum, one) => sum + one, 0);
    truncated ||= size > left || chosen.length >= limits.files;
    if (size > left || chosen.length >= limits.files) continue;
    left -= size;
    chosen.push(change);
  }
  const contents = await readBlobs(
    own,
    chosen.flatMap(({ before, after }) => [before, after].flatMap((e) => e ?? [])),
  );
  const files: ChangedText[] = [];
  for (const change of chosen) {
    const [old_text, new_text] = [change.before, change.after].map((entry) =>
      entry === null ? null : decodeText(contents.get(entry.oid)),
    );
    if (old_text !== undefined && new_text !== undefined)
      files.push({ ...toFileChange(change, prefix), old_text, new_text });
  }
  return { files, truncated };
}

function isPlain(entry: Entry | null): boolean {
  return entry === null || FILE_MODES.includes(entry.mode);
}

/** Sizes in bytes by object id; what the repository does not hold any more is missing. */
async function readSizes(own: OwnGit, oids: readonly string[]): Promise<ReadonlyMap<string, number>> {
  if (oids.length === 0) return new Map();
  const { out } = await own.run(['cat-file', '--batch-check'], { input: toLines(oids) });
  const found = new Map<string, number>();
  for (const line of out.toString('latin1').split('\n')) {
    const [oid = '', type, size] = line.split(' ');
    if (type === 'blob') found.set(oid, Number(size));
  }
  return found;
}

/** Contents by object id, of blobs that are there. */
async function readBlobs(own: OwnGit, entries: readonly Entry[]): Promise<ReadonlyMap<string, Buffer>> {
  if (entries.length === 0) return new Map();
  const { out } = await own.run(['cat-file', '--batch'], { input: toLines(entries.map(({ oid }) => oid)) });
  const found = new Map<string, Buffer>();
  for (let at = 0; at < out.length; ) {
    const end = out.indexOf('\n', at);
    const [oid = '', , size] = out.toString('latin1', at, end).split(' ');
    found.set(oid, out.subarray(end + 1, end + 1 + Number(size)));
    at = end + 1 + Number(size) + 1;
  }
  return found;
}

function toLines(oids: readonly string[]): Buffer {
  return Buffer.from(oids.map((oid) => `${oid}\n`).join(''), 'latin1');
}

/** Undefined for what is no text. */
function decodeText(content: Buffer | undefined): string | undefined {
  if (content === undefined || content.includes(0)) return undefined;
  try {
    return new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(content);
  } catch {
    return undefined;
  }
}
