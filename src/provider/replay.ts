// Answers from recorded exchanges instead of the network (11.12).
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { StartupError } from '../kernel/errors.ts';
import { fault, WireFault } from '../wire/fault.ts';
import { bodyKey, type Recording, RecordingSchema } from './recording.ts';

export interface Replay {
  /** Ids of the adapters that have recordings. */
  readonly adapters: ReadonlySet<string>;
  /** A `fetch` that opens no socket. */
  fetchFor(adapter: string): typeof fetch;
}

/** Reads the folder once. Throws `StartupError` when it or a file in it cannot be used. */
export function loadReplay(dir: string, secrets: readonly string[]): Replay {
  /** Unused recordings in name order, by what they answer. */
  const waiting = new Map<string, Recording[]>();
  const adapters = new Set<string>();
  for (const file of names(dir)) {
    const recording = readRecording(join(dir, file));
    adapters.add(recording.adapter);
    const key = keyOf(recording.adapter, recording.path, recording.body, secrets);
    const queue = waiting.get(key);
    if (queue) queue.push(recording);
    else waiting.set(key, [recording]);
  }
  return {
    adapters,
    fetchFor: (adapter) => async (input, init) => {
      const path = new URL(String(input)).pathname;
      const recording = waiting.get(keyOf(adapter, path, JSON.parse(String(init?.body ?? 'null')), secrets))?.shift();
      if (recording === undefined) {
        throw new WireFault(
          fault(
            'invalid_request',
            'replay_no_match',
            `no unused recording answers this request of adapter ${adapter} to ${path}`,
          ),
        );
      }
      if (recording.status === null) {
        if (recording.end === 'aborted') return untilAborted(init?.signal ?? null);
        throw new TypeError(`recorded failure: ${recording.end}`);
      }
      return new Response(bodyOf(recording), { status: recording.status, headers: recording.headers });
    },
  };
}

function keyOf(adapter: string, path: string, body: unknown, secrets: readonly string[]): string {
  return `${adapter} ${path} ${bodyKey(body, secrets)}`;
}

/** The chunks without their delays, and then the end that was recorded; an aborted one leaves the stream open, as it was. */
function bodyOf(recording: Recording): ReadableStream<Uint8Array> {
  const bytes = new TextEncoder();
  let next = 0;
  return new ReadableStream({
    pull(controller) {
      const chunk = recording.chunks[next++];
      if (chunk !== undefined) controller.enqueue(bytes.encode(chunk.text));
      else if (recording.end === 'complete') controller.close();
      else if (recording.end === 'aborted') return new Promise(() => {});
      else controller.error(new TypeError(`recorded failure: ${recording.end}`));
    },
  });
}

function untilAborted(signal: AbortSignal | null): Promise<never> {
  return new Promise((_, reject) => {
    signal?.addEventListener('abort', () => reject(signal.reason), { once: true });
  });
}

function names(dir: string): string[] {
  try {
    return readdirSync(dir)
      .filter((name) => name.endsWith('.json'))
      .sort();
  } catch (error) {
    throw new StartupError('replay_unreadable', [`providers.replay: ${dir} cannot be read: ${String(error)}`]);
  }
}

function readRecording(file: string): Recording {
  try {
    return RecordingSchema.parse(JSON.parse(readFileSync(file, 'utf8')));
  } catch (error) {
    const reason = error instanceof Error ? error.message.replaceAll(/\s+/g, ' ') : String(error);
    throw new StartupError('replay_unreadable', [`providers.replay: ${file} is not a recording: ${reason}`]);
  }
}
