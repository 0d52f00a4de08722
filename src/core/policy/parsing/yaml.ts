// YAML from outside: 1.2 core schema, one document, no duplicate keys, within limits of bytes, depth and values.
import { constructFromEvents, EVENT_ID, parseEvents, YAMLException } from 'js-yaml';
import { err, ok, type Result } from '#protocol/result.ts';
import { shortened } from '#protocol/text/plain-text.ts';
import { faultOfValue, type Limits, lineAt, tooDeep, tooLong, tooMany } from './limits.ts';

const MAX_ALIASES = 100;
/** A name out of the text may stand in it. */
const MAX_MESSAGE = 200;
/** Wherever it stands, such a line begins a document. */
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
      else if (event.type !== EVENT_ID.POP && ++nodes > limits.nodes) return err(tooMany(limits, lineOf(event, text)));
    }
    if (documents > 1) return err(SEVERAL);
    const [value] = constructFromEvents(events, { source: text, maxAliases: MAX_ALIASES });
    const fault = faultOfValue(value, limits);
    return fault === null ? ok(value ?? null) : err(fault);
  } catch (error) {
    return err(reason(error, limits));
  }
}

/** A YAML mapping as `readYaml` returns it. */
export function isMapping(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

function reason(error: unknown, limits: Limits): string {
  if (!(error instanceof YAMLException)) return `malformed YAML: ${shortened(String(error), MAX_MESSAGE)}`;
  const line = error.mark === undefined ? undefined : error.mark.line + 1;
  if (error.reason.startsWith('nesting exceeded')) return tooDeep(limits, line);
  const place = error.mark === undefined ? '' : ` at line ${line}, column ${error.mark.column + 1}`;
  return `malformed YAML: ${shortened(error.reason, MAX_MESSAGE)}${place}`;
}

/** The line that an error of `readYaml` names; null where it names none. */
export function lineOfError(error: string): number | null {
  const [, line] = / at line (\d+), column \d+$/.exec(error) ?? [];
  return line === undefined ? null : Number(line);
}

/** Unknown for an empty value without an anchor, which has no place of its own. */
function lineOf(event: ReturnType<typeof parseEvents>[number], text: string): number | undefined {
  const places = [
    'valueStart' in event ? event.valueStart : -1,
    'start' in event ? event.start : -1,
    'anchorStart' in event ? event.anchorStart : -1,
  ];
  const at = places.find((place) => place >= 0);
  return at === undefined ? undefined : lineAt(text, at);
}
