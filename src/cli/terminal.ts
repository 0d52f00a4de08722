// Output of commands: colours, widths, figures, tables and messages for a terminal or a pipe.

import { styleText } from 'node:util';
import stringWidth from 'string-width';
import { ApiError, type ServerAddress } from '#client/request.ts';
import { fromPusd } from '#protocol/money.ts';
import { toPrintable } from './printable-text.ts';

type Paint = (text: string) => string;
export interface Style {
  readonly bold: Paint;
  readonly dim: Paint;
  readonly red: Paint;
  readonly green: Paint;
  readonly yellow: Paint;
  readonly cyan: Paint;
}

const plain: Paint = (text) => text;
const PLAIN: Style = { bold: plain, dim: plain, red: plain, green: plain, yellow: plain, cyan: plain };
const COLOURED: Style = {
  bold: (text) => styleText('bold', text),
  dim: (text) => styleText('dim', text),
  red: (text) => styleText('red', text),
  green: (text) => styleText('green', text),
  yellow: (text) => styleText('yellow', text),
  cyan: (text) => styleText('cyan', text),
};

export function createStyle(coloured: boolean): Style {
  if (coloured) return COLOURED;
  return PLAIN;
}

/** How many columns a terminal gives it: a wide character or an emoji takes two, a combining mark none. */
export function countColumns(text: string): number {
  if (/^[\x20-\x7e]*$/.test(text)) return text.length;
  return stringWidth(text);
}

/** At most `width` columns: what does not fit ends in an ellipsis, never inside a character. */
export function clip(text: string, width: number): string {
  if (width <= 0) return '';
  if (countColumns(text) <= width) return text;
  let kept = '';
  let taken = 0;
  for (const { segment } of GRAPHEMES.segment(text)) {
    taken += countColumns(segment);
    if (taken > width - 1) break;
    kept += segment;
  }
  return `${kept}…`;
}
const GRAPHEMES = new Intl.Segmenter();

/** Exactly `width` columns: padded with spaces, or clipped. */
export function pad(text: string, width: number, align: 'left' | 'right' = 'left'): string {
  const shown = clip(text, width);
  const space = ' '.repeat(Math.max(0, width - countColumns(shown)));
  if (align === 'left') return `${shown}${space}`;
  return `${space}${shown}`;
}

/** Lines of at most `width` columns, broken between words, inside one only where it is longer than a line. */
export function wrapWords(text: string, width: number): string[] {
  return text.split('\n').flatMap((paragraph) => {
    const lines: string[] = [];
    let line = '';
    for (const word of paragraph.split(' ').flatMap((part) => splitByWidth(part, width))) {
      if (line !== '' && countColumns(line) + 1 + countColumns(word) > width) {
        lines.push(line);
        line = word;
      } else if (line === '') line = word;
      else line += ` ${word}`;
    }
    return [...lines, line];
  });
}

/** The text cut into parts of at most `width` columns; nothing is lost. */
export function splitByWidth(text: string, width: number): string[] {
  if (countColumns(text) <= width) return [text];
  const parts: string[] = [];
  let part = '';
  let taken = 0;
  for (const { segment } of GRAPHEMES.segment(text)) {
    const columns = countColumns(segment);
    if (part !== '' && taken + columns > width) {
      parts.push(part);
      part = '';
      taken = 0;
    }
    part += segment;
    taken += columns;
  }
  return [...parts, part];
}

/** The noun after a number. */
export function nameWorkers(count: number): string {
  if (count === 1) return 'worker';
  return 'workers';
}

/** `12345` -> `12,345`. */
export function groupDigits(count: number): string {
  return String(count).replace(/\B(?=(\d{3})+$)/g, ',');
}

/** `1234567.5` -> `$1,234,567.5`, to the last digit. */
export function formatDollars(usd: string): string {
  const [whole = '0', fraction] = usd.split('.');
  const dollars = `$${groupDigits(Number(whole))}`;
  if (fraction === undefined) return dollars;
  return `${dollars}.${fraction}`;
}

/** For a glance: four decimal places below $100, two from there. Half up, in integers. */
export function formatRoundedDollars(pusd: bigint): string {
  const places = pusd < HUNDRED_DOLLARS ? 4 : 2;
  const unit = 10n ** BigInt(12 - places);
  const [whole = '0', fraction = ''] = fromPusd(((pusd + unit / 2n) / unit) * unit).split('.');
  return formatDollars(`${whole}.${fraction.padEnd(places, '0')}`);
}
const HUNDRED_DOLLARS = 100n * 10n ** 12n;

/** What calls cost, with those that have no price by their number: they cost something, and not $0. */
export function formatCost(cost: string, calls: { readonly all: number; readonly unpriced: number }): string {
  if (calls.unpriced === 0) return cost;
  // A call may lack only a part of its cost.
  if (calls.unpriced >= calls.all && !/[1-9]/.test(cost)) return 'unpriced';
  return `${cost} + ${groupDigits(calls.unpriced)} unpriced`;
}

/** `42s`, `7m`, `3h`, `12d`: the largest unit that is not 0. */
export function formatAge(ms: number): string {
  const seconds = Math.max(0, Math.floor(ms / 1000));
  if (seconds < 60) return `${seconds}s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)}m`;
  if (seconds < 86_400) return `${Math.floor(seconds / 3600)}h`;
  return `${Math.floor(seconds / 86_400)}d`;
}

export interface Terminal {
  readonly env: Readonly<Record<string, string | undefined>>;
  readonly cwd: string;
  readonly stdout: TextOutput;
  readonly stderr: TextOutput;
}
export interface TextOutput {
  write(text: string): unknown;
  readonly isTTY?: boolean | undefined;
  /** Width and height in characters. */
  readonly columns?: number | undefined;
  readonly rows?: number | undefined;
}

/** As the command line parser leaves them. */
export interface ServerFlags {
  /** The configured address when left out. */
  readonly server?: string;
  readonly token?: string;
  /** Folder whose server is asked where none is named. */
  readonly data?: string;
  readonly json?: boolean;
}

const EXIT_FAILED = 1;

/** Runs `body` and returns its exit code; a refusal or silence of the server is one line on stderr. */
export async function askServer(
  { stderr }: Terminal,
  { baseUrl }: ServerAddress,
  body: () => Promise<number>,
): Promise<number> {
  try {
    return await body();
  } catch (error) {
    if (error instanceof ApiError) printMessage(stderr, describeRefusal(error));
    // fetch's own way to say that there was no connection.
    else if (error instanceof TypeError && error.cause !== undefined)
      printMessage(stderr, `no server answers at ${baseUrl}; metis serve starts one`);
    else throw error;
    return EXIT_FAILED;
  }
}

/** What to do about a refusal, by its code. */
const CURES: Readonly<Record<string, string>> = {
  model_not_configured: 'metis models lists the models of the server',
};
const NO_WORKER = 'metis workers list shows the workers of this folder';

/** The server's words, and the command that leads on. */
export function describeRefusal({ code, status, message: sentence, details }: ApiError): string {
  // The field of the interface is a flag here.
  const message = sentence.replace(/^workspace_path\b/, '--workspace');
  if (status === 401) return `${message}; give one with --token or METIS_TOKEN`;
  if (details.resource === 'worker') return `${message} (${NO_WORKER})`;
  const cure = CURES[code];
  if (cure === undefined) return message;
  return `${message} (${cure})`;
}

/** The style for `output`, by default stdout. */
export function createTerminalStyle({ stdout, env }: Terminal, output: TextOutput = stdout): Style {
  return createStyle(output.isTTY === true && !env.NO_COLOR);
}

/** Writes one message, broken between words on a terminal. */
export function printMessage(output: TextOutput, sentence: string): void {
  const text = `metis: ${toPrintable(sentence)}`;
  if (output.isTTY === true) output.write(`${wrapWords(text, (output.columns || 80) - 1).join('\n')}\n`);
  else output.write(`${text}\n`);
}

/** Columns a table may take: what the terminal has, as many as it needs where there is none. */
export function getTableWidth({ stdout }: Terminal): number {
  if (stdout.isTTY === true) return stdout.columns || 80;
  return Number.POSITIVE_INFINITY;
}

const MIN_TEXT = 4;
const GAP = 2;

export interface Column {
  readonly title: string;
  readonly align?: 'left' | 'right';
  /** Never cut: what people copy. */
  readonly whole?: boolean;
  /** Least width at which a text column is useful. */
  readonly least?: number;
  /** Left out where the width does not do, the lowest number first. */
  readonly drop?: number;
}

/**
 * Header, a rule, then the rows; null is a rule. Where the whole exceeds `width`, columns that may go are left out, then
 * text columns give way, the widest first. Lines carry no trailing spaces, and cells nothing that a terminal acts on.
 */
export function layOutTable(
  columns: readonly Column[],
  given: readonly (readonly string[] | null)[],
  width: number,
): string[] {
  const rows = given.map((row) => row?.map(toPrintable) ?? null);
  const cells = rows.filter((row) => row !== null);
  const natural = columns.map((column, i) =>
    cells.reduce((most, row) => Math.max(most, countColumns(row[i] ?? '')), countColumns(column.title)),
  );
  const kept = chooseColumns(columns, natural, width);
  const widths = kept.map((at) => natural[at]!);
  let excess = sumWidths(widths) - width;
  while (excess-- > 0) {
    const texts = kept.map((at, i) => (hasFixedWidth(columns[at]!) ? 0 : widths[i]!));
    const widest = texts.indexOf(Math.max(...texts));
    if (texts[widest]! <= MIN_TEXT) break;
    widths[widest]!--;
  }
  const rule = '─'.repeat(Math.min(width, sumWidths(widths)));
  const formatRow = (row: readonly string[]) =>
    clip(
      kept
        .map((at, i) => pad(row[at] ?? '', widths[i]!, columns[at]!.align))
        .join(' '.repeat(GAP))
        .trimEnd(),
      width,
    );
  return [formatRow(columns.map((c) => c.title)), rule, ...rows.map((row) => (row === null ? rule : formatRow(row)))];
}

function hasFixedWidth({ align, whole }: Column): boolean {
  return align === 'right' || whole === true;
}

function sumWidths(widths: readonly number[]): number {
  return widths.reduce((total, width) => total + width, Math.max(0, GAP * (widths.length - 1)));
}

/** Places of the columns that fit, each with the least it needs. */
function chooseColumns(columns: readonly Column[], natural: readonly number[], width: number): number[] {
  const least = columns.map((column, i) =>
    hasFixedWidth(column) ? natural[i]! : Math.min(natural[i]!, column.least ?? MIN_TEXT),
  );
  const going = columns
    .map(({ drop }, at) => ({ drop, at }))
    .filter(({ drop }) => drop !== undefined)
    .sort((a, b) => a.drop! - b.drop!)
    .map(({ at }) => at);
  let kept = columns.map((_, at) => at);
  while (going.length > 0 && sumWidths(kept.map((at) => least[at]!)) > width) {
    const gone = going.shift();
    kept = kept.filter((at) => at !== gone);
  }
  return kept;
}

const REASONS: Readonly<Record<string, string>> = {
  ENOENT: 'there is no such file',
  ENOTDIR: 'there is no such file',
  EISDIR: 'it is a folder',
  EACCES: 'it may not be read',
};
export function explainFileError(error: unknown): string {
  const code = error instanceof Error && 'code' in error ? String(error.code) : '';
  return REASONS[code] ?? (code || String(error));
}
