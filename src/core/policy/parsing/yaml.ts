// YAML from outside: 1.2 core schema, one document, no duplicate keys, within limits of bytes, depth and values.
import { constructFromEvents, EVENT_ID, getScalarValue, parseEvents, YAMLException } from 'js-yaml';
import { err, ok, type Result } from '#protocol/result.ts';
import { shortenText } from '#protocol/text/plain-text.ts';
import { faultOfValue, type Limits, lineAt, tooDeep, tooLong, tooMany } from './text-limits.ts';

const MAX_ALIASES = 100;
/** Maximum length of an error, which may quote a name from the text. */
const MAX_MESSAGE = 200;
/** A line that starts a new document. */
const DOCUMENT_START = /^---(?=\s|$)/gm;
const SEVERAL = 'malformed YAML: holds more than one document';

/** One document; null for an empty one. The error is one line that goes after the name of the text. */
export function readYaml(text: string, limits: Limits): Result<unknown, string> {
  if (text.length > limits.bytes || Buffer.byteLength(text) > limits.bytes) return err(tooLong(limits));
  if ([...text.matchAll(DOCUMENT_START)].length > 1) return err(SEVERAL);
  try {
    // The parser counts the document and the innermost scalar too.
    const events = parseEvents(text, { maxDepth: limits.depth + 2 });
    let nodes = 0;
    let documents = 0;
    for (const event of events) {
      if (event.type === EVENT_ID.DOCUMENT) documents++;
      else if (event.type !== EVENT_ID.POP && ++nodes > limits.nodes)
        return err(tooMany(limits, findLine(event, text)));
    }
    if (documents > 1) return err(SEVERAL);
    const [value] = constructFromEvents(events, { source: text, maxAliases: MAX_ALIASES });
    const fault = faultOfValue(value, limits);
    if (fault === null) return ok(value ?? null);
    return err(fault);
  } catch (error) {
    return err(describeError(error, limits));
  }
}

/** A YAML mapping as `readYaml` returns it. */
export function isMapping(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

/** The mapping, or an empty one in place of another value. */
export function toMapping(value: unknown): Readonly<Record<string, unknown>> {
  if (isMapping(value)) return value;
  return {};
}

/** The list, or an empty one in place of another value. */
export function toList(value: unknown): readonly unknown[] {
  if (Array.isArray(value)) return value;
  return [];
}

function describeError(error: unknown, limits: Limits): string {
  if (!(error instanceof YAMLException)) return `malformed YAML: ${shortenText(String(error), MAX_MESSAGE)}`;
  const { mark } = error;
  if (error.reason.startsWith('nesting exceeded')) return tooDeep(limits, mark && mark.line + 1);
  const fault = `malformed YAML: ${shortenText(error.reason, MAX_MESSAGE)}`;
  if (mark === undefined) return fault;
  return `${fault} at line ${mark.line + 1}, column ${mark.column + 1}`;
}

/** The line that an error of `readYaml` names; null where it names none. */
export function lineOfError(error: string): number | null {
  const [, line] = / at line (\d+), column \d+$/.exec(error) ?? [];
  if (line === undefined) return null;
  return Number(line);
}

type PlaceName = 'valueStart' | 'start' | 'anchorStart';

/** Undefined for an empty value without an anchor, which has no position. */
function findLine(event: ReturnType<typeof parseEvents>[number], text: string): number | undefined {
  const { valueStart = -1, start = -1, anchorStart = -1 } = event as Partial<Record<PlaceName, number>>;
  const at = [valueStart, start, anchorStart].find((place) => place >= 0);
  if (at === undefined) return undefined;
  return lineAt(text, at);
}

// Finds the line of a value in a YAML or JSON text, for error messages.

type Event = ReturnType<typeof parseEvents>[number];

/**
 * Finds lines by key path. For a path that is not in the text, returns the line of its longest existing prefix; null if none.
 * @param text which `readYaml` has read within the same limits
 */
export function lineFinder(text: string, limits: Limits): (path: readonly PropertyKey[]) => number | null {
  const lines = new Map<string, number>();
  try {
    const events = parseEvents(text, { maxDepth: limits.depth + 2 });
    let at = 0;
    const walk = (path: readonly PropertyKey[], keyed: number | null): void => {
      const event = events[at++];
      if (event === undefined || event.type === EVENT_ID.POP) return;
      const place = keyed ?? findOffset(event);
      if (place !== null) lines.set(formatKey(path), lineAt(text, place));
      if (event.type === EVENT_ID.SEQUENCE) {
        for (let i = 0; !isPop(events[at]); i++) walk([...path, i], null);
        at++;
      } else if (event.type === EVENT_ID.MAPPING) {
        while (!isPop(events[at])) {
          const key = events[at]!;
          if (key.type === EVENT_ID.SCALAR) {
            at++;
            walk([...path, getScalarValue(text, key)], findOffset(key));
          } else {
            // A key that is a collection belongs to no definition of ours.
            walk([...path, ''], null);
            walk([...path, ''], null);
          }
        }
        at++;
      }
    };
    at = 1;
    walk([], null);
  } catch {
    // The reader of the text has already reported its fault.
  }
  return (path) => {
    for (let length = path.length; length > 0; length--) {
      const line = lines.get(formatKey(path.slice(0, length)));
      if (line !== undefined) return line;
    }
    return null;
  };
}

function isPop(event: Event | undefined): boolean {
  return event === undefined || event.type === EVENT_ID.POP;
}

function findOffset(event: Event): number | null {
  if ('valueStart' in event && event.valueStart >= 0) return event.valueStart;
  if ('start' in event && event.start >= 0) return event.start;
  if ('anchorStart' in event && event.anchorStart >= 0) return event.anchorStart;
  return null;
}

function formatKey(path: readonly PropertyKey[]): string {
  return JSON.stringify(path.map(String));
}
