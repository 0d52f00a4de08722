// Branded ids and the one monotonic ULID generator of the process (01 §2).
import { decodeTime, encodeTime, incrementBase32, ulid } from 'ulid';

type Branded<T, B extends string> = T & { readonly __brand: B };

/** 26 characters of Crockford base 32. */
export type Ulid = string;
export type SessionId = Branded<string, 'SessionId'>;
export type TurnId = Branded<string, 'TurnId'>;
export type MessageId = Branded<string, 'MessageId'>;
export type EventId = Branded<string, 'EventId'>;
export type ToolUseId = Branded<string, 'ToolUseId'>;
export type RequestId = Branded<string, 'RequestId'>;
export type ConfirmationId = Branded<string, 'ConfirmationId'>;

export const ULID_PATTERN = /^[0-7][0-9A-HJKMNP-TV-Z]{25}$/;
export const SESSION_ID_PATTERN = /^sess_[0-7][0-9A-HJKMNP-TV-Z]{25}$/;
export const TOOL_USE_ID_PATTERN = /^tu_[0-7][0-9A-HJKMNP-TV-Z]{25}$/;

/** Unix milliseconds at which an id was made. */
export function ulidTime(id: Ulid): number {
  return decodeTime(id);
}

/** Below every id that is made at this moment or later. */
export function ulidFloor(ms: number): Ulid {
  return `${encodeTime(ms, 10)}${'0'.repeat(16)}`;
}

/** Every kind of id comes from one generator, so id order is creation order. */
export interface IdGenerator {
  /** A bare ULID, strictly greater than every one before it. */
  next(): Ulid;
  session(): SessionId;
  turn(): TurnId;
  message(): MessageId;
  event(): EventId;
  toolUse(): ToolUseId;
  request(): RequestId;
  confirmation(): ConfirmationId;
  /** Raises the floor: the next id is unique and greater than `last` (a bare ULID), whatever the clock shows. */
  seed(last: Ulid): void;
}

/**
 * Makes the process-wide generator.
 * @param now epoch milliseconds
 * @param random uniform in [0, 1)
 */
export function createIdGenerator(now: () => number, random: () => number): IdGenerator {
  let last = '';
  let lastTime = -1;

  function next(): Ulid {
    const time = now();
    // Within one millisecond (or a clock set back) the last id + 1 is cheaper than a fresh one and always greater.
    const fresh = time > lastTime ? ulid(time, random) : '';
    last = fresh > last ? fresh : incrementBase32(last);
    if (time > lastTime) lastTime = time;
    return last;
  }
  return {
    next,
    session: () => `sess_${next()}` as SessionId,
    turn: () => next() as TurnId,
    message: () => next() as MessageId,
    event: () => next() as EventId,
    toolUse: () => `tu_${next()}` as ToolUseId,
    request: () => next() as RequestId,
    confirmation: () => next() as ConfirmationId,
    seed(floor) {
      if (floor <= last) return;
      // A random id, not `floor` + 1: the generator that made `floor` may have made that one too (16 §3.2).
      lastTime = decodeTime(floor) + 1;
      last = ulid(lastTime, random);
    },
  };
}
