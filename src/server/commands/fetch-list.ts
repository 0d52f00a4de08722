// Reads a price table or registry from a file or an address, within limits of size and time (22 §5).
import fs from 'node:fs';
import path from 'node:path';
import { FETCHED_LIST, tooLong } from '#core/policy/parsing/text-limits.ts';
import { createHttpClient } from '#models/http/http-client.ts';
import { err, ok, type Result } from '#protocol/result.ts';
import { readErrorMessage } from '#protocol/text/error-message.ts';
import type { CommandContext } from '../context.ts';

const FETCH_MS = 30_000;

/** @returns the text and what it is called in messages, or one line of what went wrong */
export async function fetchList(
  { cwd, env }: Pick<CommandContext, 'cwd' | 'env'>,
  from: string,
): Promise<Result<{ readonly text: string; readonly name: string }, string>> {
  try {
    const isAddress = /^https?:\/\//i.test(from);
    const bytes = isAddress ? await fetchBytes(env, from) : readLimited(path.resolve(cwd, from), FETCHED_LIST.bytes);
    if (bytes.length > FETCHED_LIST.bytes) return err(`${from}: ${tooLong(FETCHED_LIST)}`);
    return ok({ text: bytes.toString('utf8'), name: from });
  } catch (cause) {
    const { code, name } = cause as NodeJS.ErrnoException;
    if (name === 'TimeoutError') return err(`${from}: was not read whole within ${FETCH_MS / 1000} s`);
    return err(`${from}: cannot be read: ${code ?? readErrorMessage(cause)}`);
  }
}

/** The bytes of a file, at most one more than the limit. */
export function readLimited(file: string, limit: number): Buffer {
  const opened = fs.openSync(file, 'r');
  try {
    const bytes = Buffer.alloc(limit + 1);
    let length = 0;
    for (;;) {
      const read = fs.readSync(opened, bytes, length, bytes.length - length, null);
      length += read;
      if (read === 0 || length === bytes.length) return bytes.subarray(0, length);
    }
  } finally {
    fs.closeSync(opened);
  }
}

async function fetchBytes(env: CommandContext['env'], url: string): Promise<Buffer> {
  const signal = AbortSignal.timeout(FETCH_MS);
  const headers = { accept: 'application/json, application/yaml, text/plain' };
  const response = await createHttpClient(env)({ method: 'GET', url, headers, body: [], signal, of: null });
  const pieces: Uint8Array[] = [];
  let length = 0;
  try {
    if (response.status !== 200) throw new Error(`HTTP status ${response.status}`);
    for (;;) {
      const piece = await response.readPiece();
      if (piece === null) break;
      pieces.push(piece);
      length += piece.length;
      if (length > FETCHED_LIST.bytes) break;
    }
  } finally {
    response.cancel();
  }
  return Buffer.concat(pieces);
}
