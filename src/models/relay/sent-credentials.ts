// The credentials that a relayed request carried, taken out of what its answer repeats of them (01 §10.3, 19 §2.7).

import type { RelayHeaders } from '#core/ports/relay.ts';
import { REDACTED } from '#protocol/text/scrub.ts';

/** A shorter value hides nothing, and stands in many a text by chance. */
const SHORTEST = 8;
const CREDENTIAL_HEADER = /authorization|api-?key|token|secret/;
const MARK = Buffer.from(REDACTED);

export interface SentCredentials {
  readonly values: readonly string[];
  isIn(text: string): boolean;
  /** Takes them out of a body that arrives in pieces; every other byte goes on as it is, and at once. */
  createFilter(): BodyFilter;
}

export interface BodyFilter {
  pass(piece: Uint8Array): Uint8Array;
  /** What was held back as the possible beginning of a credential. */
  rest(): Uint8Array;
}

/** @param headers as they were sent, names in lower case */
export function readSentCredentials(headers: RelayHeaders): SentCredentials {
  const values = headers
    .filter(([name]) => CREDENTIAL_HEADER.test(name))
    .map(([, value]) => value.slice(value.lastIndexOf(' ') + 1))
    .filter(({ length }) => length >= SHORTEST);
  return {
    values,
    isIn: (text) => values.some((value) => text.includes(value)),
    createFilter: () => createFilter(values.map((value) => Buffer.from(value, 'latin1'))),
  };
}

function createFilter(values: readonly Buffer[]): BodyFilter {
  let held: Buffer = Buffer.alloc(0);
  return {
    pass(piece) {
      let bytes: Buffer = held.length === 0 ? Buffer.from(piece) : Buffer.concat([held, piece]);
      for (const value of values) bytes = replaceAll(bytes, value);
      const open = Math.max(0, ...values.map((value) => openLength(bytes, value)));
      held = bytes.subarray(bytes.length - open);
      return bytes.subarray(0, bytes.length - open);
    },
    rest: () => held,
  };
}

function replaceAll(bytes: Buffer, value: Buffer): Buffer {
  let at = bytes.indexOf(value);
  if (at < 0) return bytes;
  const parts: Buffer[] = [];
  let from = 0;
  for (; at >= 0; at = bytes.indexOf(value, from)) {
    parts.push(bytes.subarray(from, at), MARK);
    from = at + value.length;
  }
  return Buffer.concat([...parts, bytes.subarray(from)]);
}

/** Bytes at the end that the value may go on from. */
function openLength(bytes: Buffer, value: Buffer): number {
  const from = Math.max(0, bytes.length - value.length + 1);
  for (let at = bytes.indexOf(value[0]!, from); at >= 0; at = bytes.indexOf(value[0]!, at + 1))
    if (value.subarray(0, bytes.length - at).equals(bytes.subarray(at))) return bytes.length - at;
  return 0;
}
