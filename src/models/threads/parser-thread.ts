// The thread that parses large bodies: 31 MB take 0.1 s (19 §2.2).
import { parentPort } from 'node:worker_threads';
import { clientPrompt, type PromptFacts } from '#core/policy/gateway/client-prompt.ts';
import { type RequestFacts, readRequestFacts } from '#core/policy/gateway/request-facts.ts';
import { readBody } from '#core/policy/parsing/json.ts';
import { type ReadPrompt, readPrompt } from '#core/policy/pricing/prompt-tokens.ts';
import type { ClientWire } from '#protocol/client-wire.ts';
import type { Result } from '#protocol/result.ts';
import { type Exchange, recordingText } from '../recorded/recording.ts';
import { type Reading, readWholeAnswer } from '../wire/answer-meter.ts';
import { METERS } from '../wire/wire-meters.ts';

type Bytes = Uint8Array<ArrayBuffer>;

/** The input of each kind of job besides the bytes, and its result. `bytes` of a result are transferred, not copied. */
export interface ParseJobs {
  readonly request: {
    readonly given: { readonly wire: ClientWire };
    readonly found: { readonly facts: Result<RequestFacts, string>; readonly bytes: Bytes };
  };
  readonly answer: {
    readonly given: { readonly wire: ClientWire };
    readonly found: { readonly reading: Reading };
  };
  readonly prompt: {
    readonly given: { readonly facts: PromptFacts; readonly withTexts: boolean };
    readonly found: { readonly prompt: ReadPrompt; readonly bytes: Bytes };
  };
  readonly recording: {
    readonly given: { readonly exchange: Exchange };
    readonly found: { readonly bytes: Bytes };
  };
  readonly body: {
    readonly given: Readonly<Record<string, never>>;
    readonly found: { readonly body: Result<unknown, string> };
  };
}

export type ParseKind = keyof ParseJobs;

export interface ParseQuestion {
  readonly id: number;
  readonly kind: ParseKind;
  readonly bytes: Bytes;
  readonly given: ParseJobs[ParseKind]['given'];
}

export interface ParseAnswer {
  readonly id: number;
  readonly found: ParseJobs[ParseKind]['found'];
}

const JOBS: {
  readonly [Kind in ParseKind]: (bytes: Bytes, given: ParseJobs[Kind]['given']) => ParseJobs[Kind]['found'];
} = {
  request: (bytes, { wire }) => ({ facts: readRequestFacts(wire, asBuffer(bytes)), bytes }),
  answer: (bytes, { wire }) => ({ reading: readWholeAnswer(METERS[wire], asBuffer(bytes)) }),
  prompt: (bytes, { facts, withTexts }) => ({
    prompt: readPrompt(clientPrompt(asBuffer(bytes), facts), withTexts),
    bytes,
  }),
  recording: (bytes, { exchange }) => ({ bytes: new TextEncoder().encode(recordingText(asBuffer(bytes), exchange)) }),
  body: (bytes) => ({ body: readBody(asBuffer(bytes)) }),
};

function asBuffer({ buffer }: Bytes): Buffer {
  return Buffer.from(buffer);
}

parentPort?.on('message', ({ id, kind, bytes, given }: ParseQuestion) => {
  const found = JOBS[kind](bytes, given as never);
  parentPort?.postMessage({ id, found } satisfies ParseAnswer, 'bytes' in found ? [found.bytes.buffer] : []);
});
