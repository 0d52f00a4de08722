// Runs one command as a process group: its output, its exit, its environment, and how to stop the group (09 §9.3, §12, §13).

import { isUtf8 } from 'node:buffer';
import { spawn } from 'node:child_process';
import { MAX_OUTPUT_BYTES, omittedNote, utf8Tail } from '#core/policy/tools/tool-output.ts';
import type { Clock } from '#protocol/clock.ts';

// Signals to a process group: a command with everything it started (09 §9.3).

/** Does nothing if the group has no processes. */
export function signalGroup(leader: number | undefined, signal: NodeJS.Signals): void {
  if (leader === undefined) return;
  try {
    process.kill(-leader, signal);
  } catch (error) {
    if (!(error instanceof Error && 'code' in error && error.code === 'ESRCH')) throw error;
  }
}

// The output of a running program in bounded memory: its first and its last part (09 §10).

interface OutputWindow {
  push(data: Buffer): void;
  /** Everything, or both ends with the number of bytes between them. Invalid bytes are U+FFFD. Call once, at the end. */
  text(): string;
}

/**
 * Bytes are decoded at the end only: decoding a flood of binary data would be slow.
 * @param half bytes kept of each end
 */
export function createOutputWindow(half: number): OutputWindow {
  const head: Buffer[] = [];
  let headBytes = 0;
  const ring = Buffer.alloc(half);
  let behind = 0;

  return {
    push(data) {
      // The stream may reuse its buffer.
      const first = Buffer.from(data.subarray(0, half - headBytes));
      if (first.length > 0) head.push(first);
      headBytes += first.length;
      // Only the end of a piece longer than the ring is kept.
      let rest = data.subarray(first.length);
      behind += Math.max(0, rest.length - half);
      rest = rest.subarray(Math.max(0, rest.length - half));
      const at = behind % half;
      const fits = Math.min(rest.length, half - at);
      rest.copy(ring, at, 0, fits);
      rest.copy(ring, 0, fits);
      behind += rest.length;
    },
    text() {
      const start = Buffer.concat(head);
      if (behind <= half) {
        const whole = toValidUtf8(Buffer.concat([start, ring.subarray(0, behind)]));
        if (whole.length <= 2 * half) return whole.toString('utf8');
        return joinEnds(whole, whole, 0);
      }
      const at = behind % half;
      const end = utf8Tail(Buffer.concat([ring.subarray(at), ring.subarray(0, at)]));
      const kept = trimPartialCharacter(start);
      return joinEnds(toValidUtf8(kept), toValidUtf8(end), start.length + behind - kept.length - end.length);
    },
  };

  /** The first half of one and the last half of the other; `between` bytes are lost already. */
  function joinEnds(first: Buffer, last: Buffer, between: number): string {
    const from = trimPartialCharacter(first.subarray(0, half));
    const to = utf8Tail(last.subarray(Math.max(0, last.length - half)));
    let total = first.length;
    if (first !== last) total += last.length;
    const lost = total - from.length - to.length;
    return `${from.toString('utf8')}${omittedNote(between + lost)}\n${to.toString('utf8')}`;
  }
}

/** As UTF-8: an invalid byte becomes U+FFFD, which takes three. */
function toValidUtf8(data: Buffer): Buffer {
  if (isUtf8(data)) return data;
  return Buffer.from(data.toString('utf8'));
}

/** How many bytes a UTF-8 character has that begins with this byte. */
function characterSize(lead: number): number {
  if (lead >= 0xf0) return 4;
  if (lead >= 0xe0) return 3;
  if (lead >= 0xc0) return 2;
  return 1;
}

/** Without a character at its end that was cut in two. */
function trimPartialCharacter(data: Buffer): Buffer {
  let start = data.length - 1;
  while (start >= 0 && ((data[start] ?? 0) & 0xc0) === 0x80) start -= 1;
  if (start + characterSize(data[start] ?? 0) > data.length) return data.subarray(0, start);
  return data;
}

const GRACE_MS = 5000;
const DRAIN_MS = 1000;
// Two pipes would lose the order of stdout and stderr: the shell joins them.
const JOINED = ['-c', 'exec "$@" 2>&1', 'sh'];

export interface CommandEnd {
  /** Exit status; null when a signal ended it. */
  readonly code: number | null;
  readonly signal: string | null;
  /** Both outputs in the order they were written, the middle left out beyond 256 KiB. */
  readonly output: string;
}

export interface RunningCommand {
  /** Leader of the process group; undefined where it could not be started. */
  readonly pid: number | undefined;
  /** Resolves when the whole group has ended. Rejects if the command could not be started. */
  readonly ended: Promise<CommandEnd>;
  /**
   * SIGTERM to the group, SIGKILL after 5 s; resolves when it is gone, false when it was gone before.
   * @param withinMs where it must be gone sooner
   */
  stop(withinMs?: number): Promise<boolean>;
}

/** Starts `argv` with closed input. */
export function startCommand({
  argv,
  cwd,
  env,
  clock,
}: {
  readonly argv: readonly string[];
  readonly cwd: string;
  readonly env: Readonly<Record<string, string>>;
  readonly clock: Clock;
}): RunningCommand {
  const child = spawn('/bin/sh', [...JOINED, ...argv], {
    cwd,
    env,
    detached: true,
    stdio: ['ignore', 'pipe', 'ignore'],
  });
  const window = createOutputWindow(MAX_OUTPUT_BYTES / 2);
  child.stdout.on('data', (data: Buffer) => window.push(data));
  let over = false;

  const ended = new Promise<CommandEnd>((resolve, reject) => {
    child.once('error', (error) => {
      over = true;
      reject(error);
    });
    child.once('exit', (code, signal) => {
      const finish = () => {
        if (over) return;
        over = true;
        drain.cancel();
        // Background processes must not outlive the call.
        signalGroup(child.pid, 'SIGKILL');
        child.stdout.destroy();
        resolve({ code, signal, output: window.text() });
      };
      const drain = clock.after(DRAIN_MS, finish);
      if (child.stdout.closed) finish();
      else child.stdout.once('close', finish);
    });
  });
  return {
    pid: child.pid,
    ended,
    async stop(withinMs = GRACE_MS) {
      if (over) return false;
      signalGroup(child.pid, 'SIGTERM');
      const kill = clock.after(Math.min(GRACE_MS, withinMs), () => signalGroup(child.pid, 'SIGKILL'));
      await ended.catch(() => {});
      kill.cancel();
      return true;
    },
  };
}

// The environment of a command: a short list of harmless names, never the server's own (09 §12).

const HARMLESS_VARIABLES = new Set(['PATH', 'HOME', 'LANG', 'TZ', 'TMPDIR', 'USER', 'SHELL']);

/**
 * What `shell` inherits.
 * @param env the server's environment
 * @param passthrough further names the configuration allows
 */
export function shellEnvironment(
  env: Readonly<Record<string, string | undefined>>,
  passthrough: readonly string[],
): Record<string, string> {
  const isAllowed = (name: string) =>
    HARMLESS_VARIABLES.has(name) || name.startsWith('LC_') || passthrough.includes(name);
  const kept = Object.entries(env).filter(
    (entry): entry is [string, string] => entry[1] !== undefined && isAllowed(entry[0]),
  );
  return { ...Object.fromEntries(kept), TERM: 'dumb' };
}
