// Values from providers and models, checked against limits before they are parsed, since parsing cannot be interrupted (11.3).
import { faultOfJson } from '#core/policy/parsing/json.ts';
import { faultOfValue, type Limits, MODEL_JSON } from '#core/policy/parsing/text-limits.ts';
import { fault, WireFault } from './fault.ts';

/** Maximum characters of one event; a whole answer in one piece has fewer. */
export const EVENT_CHARACTERS = 2 * 1024 * 1024;
/** Smaller texts are cheap to parse whatever they contain. */
const SMALL_CHARACTERS = 65_536;
/** Deep enough for the deepest accepted tool arguments inside their event. */
const LIMITS: Limits = { bytes: 4 * EVENT_CHARACTERS, depth: 150, nodes: 50_000 };

/** Throws `SyntaxError` for what is not JSON, and `WireFault` for what is too large to be part of an answer. */
export function readEventData(data: string): unknown {
  if (data.length > EVENT_CHARACTERS) throw eventTooLarge(`has more than ${EVENT_CHARACTERS} characters`);
  const problem = data.length > SMALL_CHARACTERS ? faultOfJson(data, LIMITS) : null;
  if (problem !== null) throw eventTooLarge(problem);
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

function eventTooLarge(problem: string): WireFault {
  return new WireFault(fault('other', 'response_too_large', `an event of the stream ${problem}`));
}

/** An untrusted name, such as a model's; null for other values and for names that are too long. */
export function readName(value: unknown): string | null {
  if (typeof value === 'string' && value !== '' && value.length <= MAX_NAME) return value;
  return null;
}

/** Characters of a model's name, a call's id or a stop reason; providers allow fewer. */
const MAX_NAME = 256;

// Arguments of a tool call (11.3 rule 6).

export interface ParsedArguments {
  readonly input: Readonly<Record<string, unknown>>;
  readonly error: string | null;
}

/** Tool arguments as an object; `cut` when the stream broke off inside them. */
export function parseArguments(json: string, cut: boolean): ParsedArguments {
  if (json.trim() === '' && !cut) return { input: {}, error: null };
  const fail = (reason: string): ParsedArguments => {
    if (cut) return { input: {}, error: 'incomplete' };
    return { input: {}, error: `invalid_json: ${reason}` };
  };
  // Checked before parsing: values that are nested too deep can be neither stored nor sent.
  const tooDeep = faultOfJson(json, MODEL_JSON);
  if (tooDeep !== null) return fail(tooDeep);
  try {
    const value: unknown = JSON.parse(json);
    if (typeof value === 'object' && value !== null && !Array.isArray(value))
      return { input: value as Record<string, unknown>, error: null };
    return fail('not an object');
  } catch (error) {
    return fail(error instanceof Error ? error.message : 'unreadable');
  }
}

/**
 * The text of arguments that arrived as a value instead of as text. A value that is nested too deep has no text:
 * its call is marked as rejected.
 */
export function argumentsText(slot: { refused: string | null }, value: object): string {
  slot.refused ??= faultOfValue(value, MODEL_JSON);
  if (slot.refused === null) return JSON.stringify(value);
  return '';
}

// Detects when a text that arrives in pieces is one whole JSON object; reads each character once (11.6).

export interface ObjectScan {
  feed(piece: string): void;
  /** Whether all braces are closed and only white space surrounds the object. */
  isBalanced(): boolean;
}

export function createObjectScan(): ObjectScan {
  let depth = 0;
  let inString = false;
  let escaped = false;
  let state: 'before' | 'inside' | 'whole' | 'spoiled' = 'before';

  function step(code: number): void {
    if (inString) {
      if (escaped) escaped = false;
      else if (code === 0x5c) escaped = true;
      else if (code === 0x22) inString = false;
    } else if (code === 0x20 || code === 0x0a || code === 0x0d || code === 0x09) {
      return;
    } else if (state === 'before') {
      state = code === 0x7b ? 'inside' : 'spoiled';
      depth = 1;
    } else if (state === 'whole') state = 'spoiled';
    else if (code === 0x22) inString = true;
    else if (code === 0x7b || code === 0x5b) depth++;
    else if ((code === 0x7d || code === 0x5d) && --depth === 0) state = 'whole';
  }

  return {
    feed(piece) {
      for (let at = 0; at < piece.length && state !== 'spoiled'; at++) step(piece.charCodeAt(at));
    },
    isBalanced: () => state === 'whole',
  };
}
