// Reads an answer behind its bytes: counts, why it stopped, whether it is whole; nothing of what it says is kept (19 §2.2).
import { createParser } from 'eventsource-parser';
import type { StopReason } from '../../domain/message.ts';
import { EVENT_CHARACTERS, nameOf } from '../event-data.ts';
import { classify, readWireError } from '../fault.ts';
import { noUsage, type UsageReport } from '../usage-report.ts';

/** Characters of an answer in one piece that are looked at, and of an error. */
const MAX_WHOLE = 32 * 1024 * 1024;
const MAX_ERROR = 64 * 1024;
/** What is kept of an error is a name: a sentence in its place may quote the client's. */
const ERROR_NAME = /^[A-Za-z][A-Za-z0-9_.-]{0,63}$/;

export interface Reading {
  usage: UsageReport;
  stop_reason: StopReason | null;
  served_model: string | null;
  characters: number;
  tool_calls: number;
  thinking_blocks: number;
  whole: boolean;
  fault: { readonly error_class: ReturnType<typeof classify>[0]; readonly name: string | null } | null;
}

/** What one wire says in its events, and in an answer that comes in one piece. Values are from outside. */
export interface WireMeter {
  event(data: unknown, reading: Reading): void;
  /** Data that is no JSON; true = it was understood. */
  mark?(data: string, reading: Reading): boolean;
  body(value: unknown, reading: Reading): void;
}

export interface Meter {
  readonly reading: Reading;
  feed(bytes: Uint8Array): void;
  /** The body came to its end. */
  end(): void;
}

/** @param kind an event stream, one JSON value, or the body of an error with this status */
export function createMeter(wire: WireMeter, kind: 'stream' | 'json' | { readonly status: number }): Meter {
  const reading: Reading = {
    usage: noUsage(),
    stop_reason: null,
    served_model: null,
    characters: 0,
    tool_calls: 0,
    thinking_blocks: 0,
    whole: false,
    fault: null,
  };
  return kind === 'stream' ? streamMeter(wire, reading) : wholeMeter(wire, reading, kind);
}

function streamMeter(wire: WireMeter, reading: Reading): Meter {
  const text = new TextDecoder();
  let lost = false;
  const parser = createParser({
    onEvent({ data }) {
      if (wire.mark?.(data, reading) === true) return;
      const value = parsed(data);
      if (value !== undefined) wire.event(value, reading);
    },
    onError(error) {
      if (error.type === 'max-buffer-size-exceeded') lost = true;
    },
    maxBufferSize: EVENT_CHARACTERS,
  });
  const feed = (piece: string) => {
    // An event of this size says nothing that could be counted: the bytes go on, the counts are estimated.
    if (lost) reading.characters += piece.length;
    else parser.feed(piece);
  };
  return {
    reading,
    feed: (bytes) => feed(text.decode(bytes, { stream: true })),
    end: () => feed(`${text.decode()}\n\n`),
  };
}

function wholeMeter(wire: WireMeter, reading: Reading, kind: 'json' | { readonly status: number }): Meter {
  const text = new TextDecoder();
  const most = kind === 'json' ? MAX_WHOLE : MAX_ERROR;
  let body = '';
  let size = 0;
  return {
    reading,
    feed(bytes) {
      size += bytes.byteLength;
      if (size <= most) body += text.decode(bytes, { stream: true });
      if (kind === 'json') reading.characters = size;
    },
    end() {
      const value = size > most ? undefined : parsed(body + text.decode());
      body = '';
      if (kind !== 'json') reading.fault = faultOf(value, kind.status);
      else {
        reading.whole = true;
        if (value === undefined) return;
        reading.characters = 0;
        wire.body(value, reading);
      }
    },
  };
}

function parsed(data: string): unknown {
  try {
    return JSON.parse(data);
  } catch {
    return undefined;
  }
}

/** @param status null for an error inside an answer */
export function faultOf(value: unknown, status: number | null): NonNullable<Reading['fault']> {
  const error = readWireError(value);
  const [error_class] = classify(error, status ?? error?.status ?? null);
  const name = nameOf(error?.type ?? error?.code);
  return { error_class, name: name !== null && ERROR_NAME.test(name) ? name : null };
}
