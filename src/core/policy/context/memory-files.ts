// The memory files: size limits, the content after a write, and the answer of the tool (10 §4).
import type { MemoryFile, MemoryWrite } from '#protocol/event/session-events.ts';
import { err, ok, type Result } from '#protocol/result.ts';

/** In the order of the prompt; limits in UTF-8 bytes. */
export const MEMORY_FILES = [
  { name: 'USER.md', heading: 'User context', soft: 1536, hard: 3072 },
  { name: 'MEMORY.md', heading: 'Workspace memory', soft: 2048, hard: 4096 },
] as const satisfies readonly { name: MemoryFile; heading: string; soft: number; hard: number }[];

export type MemoryEdit =
  | { readonly operation: 'add'; readonly entry: string }
  | { readonly operation: 'replace'; readonly old: string; readonly new: string }
  | { readonly operation: 'consolidate'; readonly content: string };

/** A file as it was read: its first bytes and how many it has. */
export interface MemoryContent {
  readonly head: Buffer;
  readonly size: number;
}

const NEW_LINE = 0x0a;

/**
 * The new content of a file, or the reason why it does not change, as a sentence for the model.
 * It works on bytes, so that text in another encoding is preserved.
 */
export function editMemory(file: MemoryFile, before: MemoryContent, edit: MemoryEdit): Result<Buffer, string> {
  const edited = edit.operation === 'consolidate' ? ok(Buffer.from(edit.content)) : editPart(file, before, edit);
  if (!edited.ok) return edited;
  const { hard } = getCaps(file);
  if (edited.value.length > hard) return err(rejectEntry(file, edited.value.length, hard));
  return edited;
}

function editPart(
  file: MemoryFile,
  { head, size }: MemoryContent,
  edit: Exclude<MemoryEdit, { operation: 'consolidate' }>,
): Result<Buffer, string> {
  const readInPart = size > head.length;
  if (edit.operation === 'add') {
    const entry = edit.entry.trim();
    if (entry === '') return err('entry must be non-empty');
    if (readInPart) return err(rejectEntry(file, size + Buffer.byteLength(entry) + 1, getCaps(file).hard));
    const gap = size > 0 && head[size - 1] !== NEW_LINE ? '\n' : '';
    return ok(Buffer.concat([head, Buffer.from(`${gap}${entry}\n`)]));
  }
  if (edit.old === '') return err('replace source must be non-empty');
  if (size === 0) return err(`${file} is empty; nothing to replace`);
  if (readInPart) return err(rejectEntry(file, size, getCaps(file).hard));
  const old = Buffer.from(edit.old);
  const at = head.indexOf(old);
  if (at < 0) return err(`replace source not found in ${file}`);
  const count = occurrences(head, old);
  if (count > 1) return err(`replace source appears ${count} times in ${file}; must be unique`);
  return ok(Buffer.concat([head.subarray(0, at), Buffer.from(edit.new), head.subarray(at + old.length)]));
}

/** Overlapping matches count separately. */
function occurrences(content: Buffer, sought: Buffer): number {
  let count = 0;
  for (let at = content.indexOf(sought); at >= 0; at = content.indexOf(sought, at + 1)) count += 1;
  return count;
}

function rejectEntry(file: MemoryFile, bytes: number, cap: number): string {
  return `${file} write rejected: ${bytes} bytes exceeds hard cap ${cap}; consolidate before adding more`;
}

/** The answer to a write, and whether the file exceeds the size at which the model is asked to consolidate it. */
export function memoryAnswer(
  file: MemoryFile,
  operation: MemoryEdit['operation'],
  { before_size_bytes: before, after_size_bytes: after }: MemoryWrite,
): { readonly text: string; readonly over_soft_cap: boolean } {
  const over_soft_cap = after > getCaps(file).soft;
  const message = {
    add: `appended to ${file} (${after} bytes total)`,
    replace: `replaced in ${file} (${after} bytes total)`,
    consolidate: `consolidated ${file}: ${before} → ${after} bytes`,
  }[operation];
  if (!over_soft_cap) return { text: message, over_soft_cap };
  return { text: `${message} — over soft cap; consider memory_consolidate`, over_soft_cap };
}

function getCaps(file: MemoryFile): { readonly soft: number; readonly hard: number } {
  return MEMORY_FILES.find(({ name }) => name === file)!;
}
