// Meters a relayed answer: token counts, stop reason, completeness; no content is kept (19 §2.2).
import { createParser } from 'eventsource-parser';
import { readJson } from '#core/policy/parsing/json.ts';
import { WHOLE_ANSWER } from '#core/policy/parsing/text-limits.ts';
import type { StopReason } from '#protocol/message.ts';
import { emptyUsage, type UsageReport } from './assembly.ts';
import { type BillNotes, emptyNotes } from './billed-parts.ts';
import { classify, readWireError } from './fault.ts';
import { EVENT_CHARACTERS, readName, tryEventData } from './provider-values.ts';

/** Maximum bytes read of an error. */
const MAX_ERROR = 64 * 1024;
/** Only the name of an error is kept: a sentence may quote the client. */
const ERROR_NAME = /^[A-Za-z][A-Za-z0-9_.-]{0,63}$/;

export interface Reading {
  usage: UsageReport;
  bill: BillNotes;
  stop_reason: StopReason | null;
  served_model: string | null;
  response_id: string | null;
  characters: number;
  tool_calls: number;
  thinking_blocks: number;
  background: { readonly id: string; readonly done: boolean } | null;
  whole: boolean;
  fault: {
    readonly error_class: ReturnType<typeof classify>[0];
    readonly error_detail: string | null;
    readonly name: string | null;
  } | null;
}

/** Reads events and whole answers of one wire. Values are untrusted. */
export interface WireMeter {
  event(data: unknown, reading: Reading): void;
  /** Data that is not JSON; true = recognized. */
  mark?(data: string, reading: Reading): boolean;
  body(value: unknown, reading: Reading): void;
}

export interface Meter {
  readonly reading: Reading;
  feed(bytes: Uint8Array): void;
  /** Ends the body. A thread parses a large body: the reading is complete once the promise resolves. */
  end(): void | Promise<void>;
}

/** Parses a body that would block the event loop. */
export interface LargeAnswers {
  /** Bytes above which a thread parses the answer. */
  readonly above: number;
  /** Null = parsing failed. */
  read(bytes: Buffer): Promise<Reading | null>;
}

type Kind = 'stream' | 'json' | { readonly status: number };

/** @param kind an event stream, one JSON value, or the body of an error with this status */
export function createMeter(wire: WireMeter, kind: Kind, large: LargeAnswers | null = null): Meter {
  if (kind === 'stream') return streamMeter(wire, emptyReading());
  if (kind === 'json') return wholeMeter(wire, large);
  return errorMeter(kind.status);
}

/** Reads an answer that arrived in one piece. */
export function readWholeAnswer(wire: WireMeter, bytes: Buffer): Reading {
  const reading: Reading = { ...emptyReading(), whole: true, characters: bytes.byteLength };
  const parse = readJson(bytes.toString('utf8'), WHOLE_ANSWER);
  if (!parse.ok) return reading;
  reading.characters = 0;
  wire.body(parse.value, reading);
  return reading;
}

function emptyReading(): Reading {
  return {
    usage: emptyUsage(),
    bill: emptyNotes(),
    stop_reason: null,
    served_model: null,
    response_id: null,
    characters: 0,
    tool_calls: 0,
    thinking_blocks: 0,
    background: null,
    whole: false,
    fault: null,
  };
}

function streamMeter(wire: WireMeter, reading: Reading): Meter {
  const text = new TextDecoder();
  let lost = false;
  const parser = createParser({
    onEvent({ data }) {
      if (wire.mark?.(data, reading) === true) return;
      const value = tryEventData(data);
      if (value !== undefined) wire.event(value, reading);
    },
    onError(error) {
      if (error.type === 'max-buffer-size-exceeded') lost = true;
    },
    maxBufferSize: EVENT_CHARACTERS,
  });
  const feed = (piece: string) => {
    // An event of this size is not parsed: its bytes are passed on, its counts are estimated.
    if (lost) reading.characters += piece.length;
    else parser.feed(piece);
  };
  return {
    reading,
    feed: (bytes) => feed(text.decode(bytes, { stream: true })),
    end: () => feed(`${text.decode()}\n\n`),
  };
}

function wholeMeter(wire: WireMeter, large: LargeAnswers | null): Meter {
  const reading = emptyReading();
  const pieces = createBoundedBuffer(WHOLE_ANSWER.bytes);
  return {
    reading,
    feed(bytes) {
      pieces.add(bytes);
      reading.characters = pieces.size();
    },
    end() {
      reading.whole = true;
      const body = pieces.take();
      if (body === null) return undefined;
      if (large === null || body.byteLength <= large.above)
        return void Object.assign(reading, readWholeAnswer(wire, body));
      return large.read(body).then((read) => void Object.assign(reading, read));
    },
  };
}

function errorMeter(status: number): Meter {
  const reading = emptyReading();
  const pieces = createBoundedBuffer(MAX_ERROR);
  return {
    reading,
    feed: (bytes) => pieces.add(bytes),
    end() {
      const body = pieces.take();
      const read = body === null ? null : readJson(body.toString('utf8'), WHOLE_ANSWER);
      reading.fault = readFault(read?.ok ? read.value : undefined, status);
    },
  };
}

/** Keeps up to `most` bytes; drops everything beyond that. */
function createBoundedBuffer(most: number) {
  let kept: Uint8Array[] = [];
  let size = 0;
  return {
    add(piece: Uint8Array) {
      size += piece.byteLength;
      if (size <= most) kept.push(piece);
      else kept = [];
    },
    size: () => size,
    /** Null = the limit was exceeded. */
    take() {
      const body = size > most ? null : Buffer.concat(kept);
      kept = [];
      return body;
    },
  };
}

/** @param status null for an error inside an answer */
export function readFault(value: unknown, status: number | null): NonNullable<Reading['fault']> {
  const error = readWireError(value);
  const [error_class, error_detail] = classify(error, status ?? error?.status ?? null);
  const name = readName(error?.type ?? error?.code);
  return { error_class, error_detail, name: name !== null && ERROR_NAME.test(name) ? name : null };
}
