// The data of one server-sent event as a value: bounded before it is parsed, since parsing cannot be broken off (11.3).
import { faultOfJson } from '#core/policy/parsing/json.ts';
import type { Limits } from '#core/policy/parsing/limits.ts';
import { fault, WireFault } from './fault.ts';

/** Characters of one event: a whole answer in one piece has less. */
export const EVENT_CHARACTERS = 2 * 1024 * 1024;
/** Below this no text is a burden, whatever it holds. */
const SMALL_CHARACTERS = 65_536;
/** Deep enough for the deepest tool arguments that are taken, inside their event. */
const LIMITS: Limits = { bytes: 4 * EVENT_CHARACTERS, depth: 150, nodes: 50_000 };

/** Throws `SyntaxError` for what is not JSON, and `WireFault` for what is too large to be part of an answer. */
export function readEventData(data: string): unknown {
  if (data.length > EVENT_CHARACTERS) throw tooLarge(`has more than ${EVENT_CHARACTERS} characters`);
  const problem = data.length > SMALL_CHARACTERS ? faultOfJson(data, LIMITS) : null;
  if (problem !== null) throw tooLarge(problem);
  return JSON.parse(data);
}

/** The value, or undefined for what is not JSON or too large to be part of an answer. Never throws. */
export function tryEventData(data: string): unknown {
  try {
    return readEventData(data);
  } catch {
    return undefined;
  }
}

function tooLarge(problem: string): WireFault {
  return new WireFault(fault('other', 'response_too_large', `an event of the stream ${problem}`));
}

/** A name from outside, such as a model's; null for anything else and for what is too long to be one. */
export function nameOf(value: unknown): string | null {
  return typeof value === 'string' && value !== '' && value.length <= MAX_NAME ? value : null;
}

/** Characters of a model's name, a call's id or a stop reason; providers allow fewer. */
const MAX_NAME = 256;
