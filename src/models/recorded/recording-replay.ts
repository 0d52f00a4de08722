// Answers from recorded exchanges instead of the network (11.12).

import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { StartupError } from '#protocol/errors.ts';
import { readErrorMessage } from '#protocol/text/error-message.ts';
import { joinLines } from '#protocol/text/plain-text.ts';
import { type HttpResponse, readOneByOne, type Send } from '../http/provider-http.ts';
import { fault, WireFault } from '../wire/fault.ts';
import { bodyKey, type Recording, RecordingSchema } from './recording.ts';

export interface Replay {
  /** Ids of the adapters that have recordings. */
  readonly adapters: ReadonlySet<string>;
  /** Opens no socket. */
  sendFor(adapter: string): Send;
}

/** Reads the folder once. Throws `StartupError` when it or a file in it cannot be used. */
export function loadReplay(dir: string, secrets: readonly string[]): Replay {
  /** Unused recordings in name order, by what they answer. */
  const waiting = new Map<string, Recording[]>();
  const adapters = new Set<string>();
  for (const file of listRecordings(dir)) {
    const recording = readRecording(join(dir, file));
    adapters.add(recording.adapter);
    const key = recordingKey(recording.adapter, recording.path, recording.body, secrets);
    const queue = waiting.get(key);
    if (queue) queue.push(recording);
    else waiting.set(key, [recording]);
  }
  return {
    adapters,
    sendFor:
      (adapter) =>
      async ({ url, body, signal }) => {
        const path = new URL(url).pathname;
        const recording = waiting
          .get(recordingKey(adapter, path, JSON.parse(Buffer.concat([...body]).toString('utf8')), secrets))
          ?.shift();
        if (recording === undefined) {
          throw new WireFault(
            fault(
              'invalid_request',
              'replay_no_match',
              `no unused recording answers this request of adapter ${adapter} to ${path}`,
            ),
          );
        }
        const { status } = recording;
        if (status !== null) return replayResponse({ ...recording, status }, signal);
        if (recording.end === 'aborted') return untilAborted(signal);
        throw new TypeError(`recorded failure: ${recording.end}`);
      },
  };
}

function recordingKey(adapter: string, path: string, body: unknown, secrets: readonly string[]): string {
  return `${adapter} ${path} ${bodyKey(body, secrets)}`;
}

/** The chunks without their delays, then the recorded end. After a recorded abort the stream stays open, as it did then. */
function replayResponse(recording: Recording & { readonly status: number }, signal: AbortSignal): HttpResponse {
  const bytes = new TextEncoder();
  let next = 0;
  let cut = false;
  return {
    status: recording.status,
    header: (name) => recording.headers[name] ?? null,
    headers: Object.entries(recording.headers),
    async readPiece() {
      const chunk = cut ? undefined : recording.chunks[next++];
      if (chunk !== undefined) return bytes.encode(chunk.text);
      if (recording.end === 'complete' || cut) return null;
      if (recording.end === 'aborted') return untilAborted(signal);
      throw new TypeError(`recorded failure: ${recording.end}`);
    },
    readPieces(take) {
      return readOneByOne(this, take);
    },
    isEnded: () => cut || (recording.end === 'complete' && next >= recording.chunks.length),
    cancel() {
      cut = true;
    },
  };
}

function untilAborted(signal: AbortSignal): Promise<never> {
  return new Promise((_, reject) => {
    if (signal.aborted) reject(signal.reason);
    else signal.addEventListener('abort', () => reject(signal.reason), { once: true });
  });
}

function listRecordings(dir: string): string[] {
  try {
    return readdirSync(dir)
      .filter((name) => name.endsWith('.json'))
      .sort();
  } catch (error) {
    throw new StartupError('replay_unreadable', [`providers.replay: ${dir} ${describeReadError(error)}`]);
  }
}

function describeReadError(error: unknown): string {
  const { code } = error as NodeJS.ErrnoException;
  if (code === 'ENOENT') return 'does not exist; record into it first, with providers.record';
  if (code === 'ENOTDIR') return 'is no folder';
  return `cannot be read: ${code ?? String(error)}`;
}

function readRecording(file: string): Recording {
  try {
    return RecordingSchema.parse(JSON.parse(readFileSync(file, 'utf8')));
  } catch (error) {
    const reason = joinLines(readErrorMessage(error));
    throw new StartupError('replay_unreadable', [`providers.replay: ${file} is not a recording: ${reason}`]);
  }
}
