// Reads a price table or registry from a file or an address, within limits of size and time (22 §5).
import fs from 'node:fs';
import path from 'node:path';
import { FETCHED_LIST, tooLong } from '#core/policy/parsing/text-limits.ts';
import { createHttpClient } from '#models/http/http-client.ts';
import { isPlainUrl, PLAIN_URL } from '#protocol/config.ts';
import { err, ok, type Result } from '#protocol/result.ts';
import { readErrorMessage } from '#protocol/text/error-message.ts';
import type { CommandContext } from '../context.ts';
import { hideCredentials } from '../url.ts';

const FETCH_MS = 30_000;
/** An address, or what was meant as one: `user:password@host` without a scheme too. */
const ADDRESS = /^[a-z][a-z0-9+.-]*:\/\/|^[^/\s]*:[^/\s]*@/i;

/** The text, and `from` as messages name it: credentials and parameters of an address are never printed. */
export async function fetchList(
  { cwd, env }: Pick<CommandContext, 'cwd' | 'env'>,
  from: string,
): Promise<Result<{ readonly text: string; readonly name: string }, string>> {
  const isAddress = ADDRESS.test(from);
  if (isAddress && !isPlainUrl(from)) return err(`--from: a file, or an address that ${PLAIN_URL}`);
  const name = isAddress ? hideCredentials(from) : from;
  try {
    const bytes = isAddress ? await fetchBytes(env, from) : readLimited(path.resolve(cwd, from), FETCHED_LIST.bytes);
    if (bytes.length > FETCHED_LIST.bytes) return err(`${name}: ${tooLong(FETCHED_LIST)}`);
    return ok({ text: bytes.toString('utf8'), name });
  } catch (cause) {
    const { code, name: fault } = cause as NodeJS.ErrnoException;
    if (fault === 'TimeoutError') return err(`${name}: was not read whole within ${FETCH_MS / 1000} s`);
    return err(`${name}: cannot be read: ${code ?? readErrorMessage(cause)}`);
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
