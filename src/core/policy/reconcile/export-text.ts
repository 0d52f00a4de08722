// Texts of a provider's export: JSON with its numbers as they are written, and CSV, within limits (22 §6).
import { err, ok, type Result } from '#protocol/result.ts';
import { faultOfJson } from '../parsing/json.ts';
import { type Limits, lineAt, tooLong } from '../parsing/text-limits.ts';

/** Far above a year of daily sums, and a month of single calls. */
export const EXPORT_FILE: Limits = { bytes: 33_554_432, depth: 12, nodes: 2_000_000 };
const MAX_ROWS = 300_000;
const MAX_COLUMNS = 200;

/** Numbers are texts, so that no digit of an amount is lost. A key that stands twice is an error. */
export function readExactJson(text: string): Result<unknown, string> {
  const fault = faultOfJson(text, EXPORT_FILE);
  if (fault !== null) return err(fault);
  let keys = 0;
  // The third argument is newer than the types of the language.
  function keepNumber(this: unknown, _key: string, value: unknown, { source }: { readonly source?: string }): unknown {
    if (!Array.isArray(this)) keys++;
    if (typeof value === 'number') return source ?? String(value);
    return value;
  }
  try {
    const value: unknown = JSON.parse(text, keepNumber as (this: unknown, key: string, value: unknown) => unknown);
    // One of the counted keys is that of the whole value.
    if (faultOfJson(text, { ...EXPORT_FILE, keys: keys - 1 }) !== null) return err('has a key that stands twice');
    return ok(value);
  } catch {
    return err('is not valid JSON');
  }
}

export interface CsvRow {
  /** Counted from 1. */
  readonly line: number;
  /** By the name of its column. */
  readonly cells: ReadonlyMap<string, string>;
}

/** The rows below a header; every row has as many cells as the header. */
export function readCsv(text: string): Result<readonly CsvRow[], string> {
  if (Buffer.byteLength(text) > EXPORT_FILE.bytes) return err(tooLong(EXPORT_FILE));
  const records = splitCsv(text.replace(/^\uFEFF/, ''));
  if (!records.ok) return records;
  const [header, ...rows] = records.value;
  if (header === undefined) return err('is empty');
  const names = header.cells.map((name) => name.trim());
  if (new Set(names).size < names.length) return err('has two columns of one name');
  const odd = rows.find(({ cells }) => cells.length !== names.length);
  if (odd !== undefined) return err(`has ${odd.cells.length} cells at line ${odd.line}, ${names.length} in its header`);
  return ok(rows.map(({ line, cells }) => ({ line, cells: new Map(names.map((name, i) => [name, cells[i]!])) })));
}

interface CsvRecord {
  readonly line: number;
  readonly cells: readonly string[];
}

/** Empty lines are left out. */
function splitCsv(text: string): Result<readonly CsvRecord[], string> {
  const records: CsvRecord[] = [];
  let cells: string[] = [];
  let line = 1;
  let start = 1;
  for (let at = 0; at < text.length || cells.length > 0; ) {
    const cell = readCell(text, at);
    if (cell === null) return err(`is not valid CSV at line ${lineAt(text, at)}`);
    cells.push(cell.text);
    if (cells.length > MAX_COLUMNS) return err(`has more than ${MAX_COLUMNS} columns at line ${start}`);
    line += countLineEnds(text.slice(at, cell.next));
    at = cell.next;
    if (cell.end === ',') continue;
    if (cells.length > 1 || cells[0] !== '') records.push({ line: start, cells });
    if (records.length > MAX_ROWS) return err(`has more than ${MAX_ROWS} rows`);
    cells = [];
    start = line;
  }
  return ok(records);
}

const PLAIN = /[^",\r\n]*/y;
const END = /,|\r\n|\n|\r|$/y;

/** The cell at this place, what ends it and where the next one begins; null where there is none. */
function readCell(
  text: string,
  at: number,
): { readonly text: string; readonly end: string; readonly next: number } | null {
  let close = at;
  if (text[at] === '"') {
    do close = text.indexOf('"', close + 1) + 1;
    while (close > 0 && text[close] === '"');
    if (close === 0) return null;
  } else {
    PLAIN.lastIndex = at;
    PLAIN.test(text);
    close = PLAIN.lastIndex;
  }
  END.lastIndex = close;
  const [end] = END.exec(text) ?? [];
  if (end === undefined) return null;
  const cell = text.slice(at, close);
  if (!cell.startsWith('"')) return { text: cell, end, next: close + end.length };
  return { text: cell.slice(1, -1).replaceAll('""', '"'), end, next: close + end.length };
}

function countLineEnds(text: string): number {
  return text.match(/\r\n|\n|\r/g)?.length ?? 0;
}

const DECIMAL = /^(-?)(\d{1,40})(?:\.(\d{0,80}))?(?:[eE]([+-]?\d{1,2}))?$/;
const PUSD_DIGITS = 12;
const MAX_PUSD = 10n ** 24n;

/**
 * An amount as it is written, in picodollars; digits below a picodollar are rounded half up. Null for what is no
 * decimal, and for more than a trillion dollars.
 * @param shift digits by which its unit is smaller than a dollar: 2 for cents
 */
export function parseAmount(text: string, shift = 0): bigint | null {
  const [all, sign, whole, fraction = '', exponent = '0'] = DECIMAL.exec(text) ?? [];
  if (all === undefined) return null;
  const digits = BigInt(whole! + fraction);
  const power = PUSD_DIGITS - fraction.length + Number(exponent) - shift;
  const value = power >= 0 ? digits * 10n ** BigInt(power) : roundHalfUp(digits, 10n ** BigInt(-power));
  if (value > MAX_PUSD) return null;
  return sign === '-' ? -value : value;
}

function roundHalfUp(value: bigint, by: bigint): bigint {
  return (value + by / 2n) / by;
}

/** A count of tokens; null for what is no whole number from 0. */
export function parseCount(text: string): bigint | null {
  if (!/^\d{1,15}$/.test(text)) return null;
  return BigInt(text);
}
