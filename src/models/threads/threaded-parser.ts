// Parses large bodies on a thread, which starts with the first body, so that they do not block the event loop (19 §2.2).
import { Worker } from 'node:worker_threads';
import type { RequestFacts } from '#core/policy/gateway/request-facts.ts';
import { type Prompt, restorePrompt } from '#core/policy/pricing/prompt-tokens.ts';
import type { BodyParser } from '#core/ports/body-parser.ts';
import type { Logger } from '#core/ports/logger.ts';
import type { ClientWire } from '#protocol/client-wire.ts';
import type { Exchange } from '../recorded/recording.ts';
import type { Reading } from '../wire/answer-meter.ts';
import type { ParseAnswer, ParseJobs, ParseKind, ParseQuestion } from './parser-thread.ts';

export interface ThreadedParser extends BodyParser<RequestFacts, Prompt> {
  /** Null = the thread failed. */
  readAnswer(wire: ClientWire, bytes: Buffer): Promise<Reading | null>;
  /** The text of a recording's file. Transfers the body. Rejects when the thread fails. */
  makeRecording(body: Buffer, exchange: Exchange): Promise<Uint8Array>;
  close(): Promise<void>;
}

/** Smaller bodies are parsed within a few milliseconds. */
const ABOVE_BYTES = 262_144;

interface Waiting {
  resolve(found: ParseAnswer['found']): void;
  reject(error: Error): void;
}

/** @param program path of `parser-thread`, built or as source */
export function createThreadedParser(program: string, log: Logger): ThreadedParser {
  const waiting = new Map<number, Waiting>();
  let thread: Worker | null = null;
  let asked = 0;

  function start(): Worker {
    const worker = new Worker(program);
    worker.unref();
    worker.on('message', (answer: ParseAnswer) => {
      waiting.get(answer.id)?.resolve(answer.found);
      waiting.delete(answer.id);
    });
    worker.on('error', (err) => log.error({ err }, 'the thread that parses large bodies failed'));
    worker.on('exit', () => {
      if (thread === worker) thread = null;
      for (const { reject } of waiting.values()) reject(new Error('the thread that parses large bodies ended'));
      waiting.clear();
    });
    return worker;
  }

  /** Transfers the bytes: the caller must not use them afterwards. */
  function ask<Kind extends ParseKind>(
    kind: Kind,
    body: Buffer,
    given: ParseJobs[Kind]['given'],
  ): Promise<ParseJobs[Kind]['found']> {
    return new Promise((resolve, reject) => {
      const id = ++asked;
      const bytes = ownBytes(body);
      waiting.set(id, { resolve, reject });
      thread ??= start();
      thread.postMessage({ id, kind, bytes, given } satisfies ParseQuestion, [bytes.buffer]);
    });
  }

  return {
    above: ABOVE_BYTES,
    async readRequest(wire, body) {
      const { facts, bytes } = await ask('request', body, { wire });
      return { facts, bytes: Buffer.from(bytes.buffer) };
    },
    async readPrompt(body, { wire, members, size }, withTexts) {
      const { prompt, bytes } = await ask('prompt', body, { facts: { wire, members, size }, withTexts });
      return { prompt: restorePrompt(prompt), bytes: Buffer.from(bytes.buffer) };
    },
    async makeRecording(body, exchange) {
      return (await ask('recording', body, { exchange })).bytes;
    },
    async readAnswer(wire, body) {
      const found = await ask('answer', body, { wire }).catch(() => null);
      return found?.reading ?? null;
    },
    async readBody(bytes) {
      return (await ask('body', bytes, {})).body;
    },
    async close() {
      await thread?.terminate();
    },
  };
}

/** The bytes in a buffer of their own, which can be transferred without a copy. */
function ownBytes(bytes: Buffer): Uint8Array<ArrayBuffer> {
  const { buffer, byteOffset, byteLength } = bytes;
  if (buffer instanceof ArrayBuffer && byteOffset === 0 && buffer.byteLength === byteLength)
    return new Uint8Array(buffer);
  return new Uint8Array(bytes);
}
