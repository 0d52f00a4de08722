// The memory files of a workspace: as a prompt shows them, and changed by one writer at a time (10 §4).
import { createHash } from 'node:crypto';
import { MEMORY_FILES, type MemoryContent } from '#core/policy/context/memory-files.ts';
import { utf8Head } from '#core/policy/tools/tool-output.ts';
import type { MemoryChange, WorkspaceFiles } from '#core/ports/workspace.ts';
import type { Awaitable } from '#protocol/async/awaitable.ts';
import type { MemoryFile, MemoryWrite } from '#protocol/event/session-events.ts';
import { sha256Hex } from '#protocol/text/canonical-json.ts';
import { plainText } from '#protocol/text/plain-text.ts';
import { ToolError } from '#protocol/tool.ts';
import {
  describeProblem,
  errorCode,
  isMissing,
  NotRegular,
  openRegular,
  readStart,
  replaceFile,
  runExclusive,
  SwappedPath,
} from './descriptors.ts';
import type { OnceLogger } from './once-logger.ts';

/** Only size and hash are used of a larger file. */
const MAX_KEPT_BYTES = 1024 * 1024;
/** Tools reject larger files. */
const MAX_FILE_BYTES = 64 * 1024 * 1024;
const CHUNK_BYTES = 64 * 1024;

/**
 * Both files under their headings; blank files are left out; null = no content.
 * Files that are too large are truncated, unreadable files are left out; both are logged.
 */
export function memoryText(files: WorkspaceFiles, log: OnceLogger): Awaitable<string | null> {
  const folder = `${files.root}/.metis`;
  if (isMissing(folder)) return null;
  return readSections(folder, files, log);
}

async function readSections(folder: string, files: WorkspaceFiles, log: OnceLogger): Promise<string | null> {
  const sections: string[] = [];
  for (const { name, heading, hard } of MEMORY_FILES) {
    if (isMissing(`${folder}/${name}`)) continue;
    const data = await readMemory(files, name, hard + 1, log);
    const text = plainText(utf8Head(data, hard).toString('utf8')).trim();
    const over = data.length > hard;
    if (over) {
      const fields = { workspace: files.root, file: name, cap: hard };
      log.log(
        'warn',
        `${files.root}/${name}`,
        fields,
        'a memory file exceeds its cap and is shown in part: shorten it',
      );
    }
    const body = over ? `${text}\n[truncated: file exceeds its ${hard}-byte cap]` : text;
    if (body !== '') sections.push(`## ${heading} (${name})\n${body}`);
  }
  if (sections.length === 0) return null;
  return sections.join('\n\n');
}

async function readMemory(files: WorkspaceFiles, name: MemoryFile, bytes: number, log: OnceLogger): Promise<Buffer> {
  try {
    const path = await files.resolve(`.metis/${name}`, 'read');
    return (await readStart(path.absolute, bytes)) ?? Buffer.alloc(0);
  } catch (error) {
    const fields = { workspace: files.root, file: name, problem: describeProblem(error) };
    log.log('warn', `${files.root}/${name}`, fields, 'a memory file is ignored');
    return Buffer.alloc(0);
  }
}

/** Implements `Workspaces.changeMemory`. */
export async function changeMemory(files: WorkspaceFiles, { file, next, notify }: MemoryChange): Promise<MemoryWrite> {
  const path = await files.resolve(`.metis/${file}`, 'read').catch((error: unknown) => {
    // Only memory tools write here, under the rules for reading.
    throw toToolError(file, error);
  });
  return runExclusive(path.absolute, async () => {
    const { hash, ...before } = await readAll(path.absolute).catch((error: unknown) => {
      throw toToolError(file, error);
    });
    const content = next(before);
    const write: MemoryWrite = {
      before_hash: hash,
      after_hash: sha256Hex(content),
      before_size_bytes: before.size,
      after_size_bytes: content.length,
    };
    if (write.after_hash === hash) return write;
    const ready = async () => {
      // An editor or another server may have saved the file in the meantime: its text is kept.
      if ((await readAll(path.absolute)).hash !== hash)
        throw new ToolError('execution_error', 'it was changed by another program at the same time; try again');
    };
    await replaceFile(files.root, path.relative, content, { sync: true, ready }).catch((error: unknown) => {
      throw toToolError(file, error);
    });
    await notify(write);
    return write;
  });
}

/** The file with its hash; a missing one is empty. */
async function readAll(absolute: string): Promise<MemoryContent & { readonly hash: string }> {
  const parts: Buffer[] = [];
  const hash = createHash('sha256');
  let size = 0;
  const handle = isMissing(absolute) ? null : await openRegular(absolute);
  try {
    while (handle !== null) {
      const { bytesRead, buffer } = await handle.read(Buffer.allocUnsafe(CHUNK_BYTES), 0, CHUNK_BYTES);
      if (bytesRead === 0) break;
      const part = buffer.subarray(0, bytesRead);
      hash.update(part);
      if (size < MAX_KEPT_BYTES) parts.push(part);
      size += bytesRead;
      if (size > MAX_FILE_BYTES)
        throw new ToolError('execution_error', `it has more than ${MAX_FILE_BYTES} bytes; remove it by hand`);
    }
  } finally {
    await handle?.close();
  }
  return { head: Buffer.concat(parts), size, hash: hash.digest('hex') };
}

function toToolError(file: MemoryFile, error: unknown): unknown {
  if (error instanceof SwappedPath || error instanceof NotRegular)
    return new ToolError('execution_error', `${file} cannot be used: it ${describeProblem(error)}`);
  // A system's own message would name the folder.
  const why = error instanceof ToolError ? error.message : errorCode(error);
  if (why === null) return error;
  return new ToolError('execution_error', `${file} cannot be used: ${why}`);
}
