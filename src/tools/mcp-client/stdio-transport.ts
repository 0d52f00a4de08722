// An MCP server as a child process: one JSON message a line on its input and output (09 §11).
// Written here because the library's own transport parses before it checks, and ends the process but not its group.
import { type ChildProcessByStdio, spawn } from 'node:child_process';
import type { Readable, Writable } from 'node:stream';
import type { JSONRPCMessage, Transport } from '@modelcontextprotocol/client';
import { faultOfJson } from '#core/policy/parsing/json.ts';
import { isMapping } from '#core/policy/parsing/yaml.ts';
import type { Clock } from '#protocol/clock.ts';
import { signalGroup } from '../sandbox/command.ts';
import { beginSlice, MESSAGE_LIMITS, type OnFault } from './message-limits.ts';

const STEP_MS = 2000;
const DRAIN_MS = 1000;
const NEWLINE = 0x0a;

export interface StdioOptions {
  readonly command: string;
  readonly args: readonly string[];
  readonly cwd: string;
  /** The whole environment of the process. */
  readonly env: Readonly<Record<string, string>>;
  readonly clock: Clock;
  readonly onFault: OnFault;
  /** Output outside the protocol: stderr, or lines that are not JSON. */
  readonly onNoise: (text: string) => void;
  readonly onGarbage: () => void;
}

type Child = ChildProcessByStdio<Writable, Readable, Readable>;

/** `close` ends its input, sends SIGTERM after 2 s and SIGKILL after 2 more, to all that it started too. */
export function stdioTransport(options: StdioOptions): Transport {
  const { clock, onFault, onNoise, onGarbage } = options;
  let child: Child | null = null;
  let gone: Promise<void> = Promise.resolve();
  let over = false;
  let closing = false;

  const transport: Transport = {
    start() {
      return new Promise((resolve, reject) => {
        const { command, args, cwd, env } = options;
        const started: Child = spawn(command, args, { cwd, env, detached: true, stdio: ['pipe', 'pipe', 'pipe'] });
        child = started;
        started.once('spawn', resolve);
        started.once('error', (error: NodeJS.ErrnoException) => {
          over = true;
          onFault(`cannot be started (${error.code ?? error.message}): check its command and cwd`);
          reject(error);
        });
        // Writing to an ended process fails; the exit event reports it.
        started.stdin.on('error', () => {});
        started.stderr.on('data', (data: Buffer) => onNoise(data.toString('utf8')));
        readLines(started.stdout, {
          clock,
          onLine: receive,
          onTooLong: () => fail(`sent a message of more than ${MESSAGE_LIMITS.bytes} bytes`),
        });
        gone = waitForExit(started);
      });
    },
    send(message) {
      const input = child?.stdin;
      if (over || !input?.writable) return Promise.reject(new Error('the process has ended'));
      return new Promise((resolve, reject) => {
        input.write(`${JSON.stringify(message)}\n`, (error) => {
          if (error) reject(error);
          else resolve();
        });
      });
    },
    async close() {
      const open = child;
      if (open === null || over) return;
      closing = true;
      open.stdin.end();
      const steps = [
        clock.after(STEP_MS, () => signalGroup(open.pid, 'SIGTERM')),
        clock.after(2 * STEP_MS, () => signalGroup(open.pid, 'SIGKILL')),
      ];
      await gone;
      for (const step of steps) step.cancel();
    },
  };
  return transport;

  function receive(line: string): void {
    if (line.trim() === '') return;
    const fault = faultOfJson(line, MESSAGE_LIMITS);
    if (fault !== null) {
      fail(`sent a message that ${fault}`);
      return;
    }
    const message = parseObject(line);
    if (message === null) {
      // Many servers write their log to stdout.
      onGarbage();
      onNoise(line);
    } else if ('method' in message) {
      transport.onmessage?.(message);
    } else {
      // The library puts off what it is notified of, and forgets the progress of a call with its answer.
      queueMicrotask(() => transport.onmessage?.(message));
    }
  }

  function fail(reason: string): void {
    onFault(reason);
    signalGroup(child?.pid, 'SIGKILL');
  }

  /** Resolves when the process has exited and its output is read. */
  function waitForExit(process: Child): Promise<void> {
    return new Promise((resolve) => {
      process.once('exit', (code, signal) => {
        const finish = () => {
          if (over) return;
          over = true;
          drain.cancel();
          signalGroup(process.pid, 'SIGKILL');
          for (const stream of [process.stdin, process.stdout, process.stderr]) stream.destroy();
          onFault(signal === null ? `ended with exit status ${code}` : `was ended by ${signal}`);
          transport.onclose?.();
          resolve();
        };
        // A background process may keep the output open.
        const drain = clock.after(DRAIN_MS, finish);
        if (closing || process.stdout.closed) finish();
        else process.stdout.once('close', finish);
      });
    });
  }
}

function parseObject(line: string): JSONRPCMessage | null {
  try {
    const value: unknown = JSON.parse(line);
    if (isMapping(value)) return value as unknown as JSONRPCMessage;
    return null;
  } catch {
    return null;
  }
}

/** Reads lines. Endless output is read in slices, so that it does not block the event loop. */
function readLines(
  stream: Readable,
  {
    clock,
    onLine,
    onTooLong,
  }: { readonly clock: Clock; readonly onLine: (line: string) => void; readonly onTooLong: () => void },
): void {
  let parts: Buffer[] = [];
  let size = 0;
  let tooLong = false;
  stream.on('error', () => {});
  stream.on('data', readData);

  function readData(data: Buffer): void {
    const pauseNow = beginSlice(clock);
    let rest = data;
    while (!tooLong) {
      const end = rest.indexOf(NEWLINE);
      const part = end < 0 ? rest : rest.subarray(0, end);
      size += part.length;
      if (size > MESSAGE_LIMITS.bytes) {
        tooLong = true;
        parts = [];
        onTooLong();
        return;
      }
      parts.push(part);
      if (end < 0) return;
      const line = Buffer.concat(parts).toString('utf8');
      parts = [];
      size = 0;
      onLine(line);
      rest = rest.subarray(end + 1);
      const pause = pauseNow();
      if (pause === 0) continue;
      stream.pause();
      const left = rest;
      clock.after(pause, () => {
        if (stream.destroyed) return;
        stream.resume();
        readData(left);
      });
      return;
    }
  }
}
