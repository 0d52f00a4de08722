// Limits of texts and values from outside: bytes, depth and number of values, checked without recursion.

/** Limits of one text; recursive functions over the parsed value rely on `depth`. */
export interface Limits {
  /** UTF-8 bytes of the text. */
  readonly bytes: number;
  /** Collections inside each other; a scalar alone has depth 0. */
  readonly depth: number;
  /** Values altogether, with every alias expanded. */
  readonly nodes: number;
  /** Keys of objects altogether; absent = no more than the values. Each costs far more than a value of an array. */
  readonly keys?: number;
}

/** A file of a workspace or a text of a caller: far larger than hand-written text, and parsed within milliseconds. */
export const OUTSIDE: Limits = { bytes: 262_144, depth: 100, nodes: 20_000 };
/** A file of the person who runs the server, such as a price table. */
export const OWN_FILE: Limits = { bytes: 16_777_216, depth: 100, nodes: 1_000_000 };
/** A price table or registry of others, as a command fetches it: far above today's, which have 10 kB. */
export const FETCHED_LIST: Limits = { bytes: 4_194_304, depth: 20, nodes: 200_000 };
/** A request body; its bytes are counted as they arrive. */
export const BODY: Limits = { bytes: Number.POSITIVE_INFINITY, depth: 100, nodes: 20_000, keys: 10_000 };
/** A gateway client's request to a model (19 §2.7); its depth allows tool arguments of the maximum depth. */
export const CLIENT_BODY: Limits = { bytes: Number.POSITIVE_INFINITY, depth: 128, nodes: 1_000_000, keys: 100_000 };
/** A provider's answer in one piece. */
export const WHOLE_ANSWER: Limits = { bytes: 33_554_432, depth: 150, nodes: 1_000_000, keys: 100_000 };
/** JSON that a model wrote: tool arguments, a structured answer. */
export const MODEL_JSON: Limits = { bytes: 67_108_864, depth: 100, nodes: 20_000 };

export function tooLong(limits: Limits): string {
  return `has more than ${limits.bytes} bytes`;
}

/** @param line where known, counted from 1 */
export function tooDeep(limits: Limits, line?: number): string {
  return `is nested deeper than ${limits.depth} levels${formatLine(line)}`;
}

/** @param line where known, counted from 1 */
export function tooMany(limits: Limits, line?: number): string {
  return `has more than ${limits.nodes} values${formatLine(line)}`;
}

function formatLine(line: number | undefined): string {
  if (line === undefined) return '';
  return ` at line ${line}`;
}

export function tooManyKeys(most: number): string {
  return `has more than ${most} keys`;
}

/** The limit a parsed value breaks, as the end of a sentence; null = none. A cycle is too deep. */
export function faultOfValue(value: unknown, limits: Limits): string | null {
  let nodes = 0;
  let level: unknown[] = [value];
  for (let depth = 0; level.length > 0; depth++) {
    nodes += level.length;
    if (nodes > limits.nodes) return tooMany(limits);
    const next: unknown[] = [];
    for (const node of level) {
      if (typeof node !== 'object' || node === null) continue;
      if (depth === limits.depth) return tooDeep(limits);
      for (const child of Object.values(node)) next.push(child);
      // Aliases can multiply within one level: stop before all are expanded.
      if (nodes + next.length > limits.nodes) return tooMany(limits);
    }
    level = next;
  }
  return null;
}

/** Number of the line at this position, from 1. */
export function lineAt(text: string, position: number): number {
  let line = 1;
  for (let at = text.indexOf('\n'); at >= 0 && at < position; at = text.indexOf('\n', at + 1)) line++;
  return line;
}
