// Text for terminals: colours or none, its width in columns, figures.
import { styleText } from 'node:util';
import stringWidth from 'string-width';
import { fromPusd } from '#protocol/money.ts';

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
  return coloured ? COLOURED : PLAIN;
}

/** How many columns a terminal gives it: a wide character or an emoji takes two, a combining mark none. */
export function countColumns(text: string): number {
  return /^[\x20-\x7e]*$/.test(text) ? text.length : stringWidth(text);
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
  return align === 'left' ? `${shown}${space}` : `${space}${shown}`;
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
      } else line = line === '' ? word : `${line} ${word}`;
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

/** `12345` -> `12,345`. */
export function groupDigits(count: number): string {
  return String(count).replace(/\B(?=(\d{3})+$)/g, ',');
}

/** `1234567.5` -> `$1,234,567.5`, to the last digit. */
export function formatDollars(usd: string): string {
  const [whole = '0', fraction] = usd.split('.');
  return `$${groupDigits(Number(whole))}${fraction === undefined ? '' : `.${fraction}`}`;
}

/** For a glance: four decimal places below $100, two from there. Half up, in integers. */
export function formatRoundedDollars(pusd: bigint): string {
  const places = pusd < HUNDRED_DOLLARS ? 4 : 2;
  const unit = 10n ** BigInt(12 - places);
  const [whole = '0', fraction = ''] = fromPusd(((pusd + unit / 2n) / unit) * unit).split('.');
  return formatDollars(`${whole}.${fraction.padEnd(places, '0')}`);
}
const HUNDRED_DOLLARS = 100n * 10n ** 12n;

/** `950`, `1.2k`, `35k`, `1.2M`: at most four characters up to a billion, rounded down. */
export function formatCompact(count: number): string {
  for (const [unit, name] of UNITS) {
    if (count < unit) continue;
    const tenths = Math.floor((count * 10) / unit);
    return `${tenths < 100 ? tenths / 10 : Math.floor(tenths / 10)}${name}`;
  }
  return String(count);
}
const UNITS = [
  [1e9, 'G'],
  [1e6, 'M'],
  [1e3, 'k'],
] as const;

/** `42s`, `7m`, `3h`, `12d`: the largest unit that is not 0. */
export function formatAge(ms: number): string {
  const seconds = Math.max(0, Math.floor(ms / 1000));
  if (seconds < 60) return `${seconds}s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)}m`;
  if (seconds < 86_400) return `${Math.floor(seconds / 3600)}h`;
  return `${Math.floor(seconds / 86_400)}d`;
}

/** What a terminal acts on or does not show: control and format characters, but for the joiners of emoji and scripts. */
const UNSEEN = String.raw`[\p{Cc}\p{Zl}\p{Zp}]|(?![\u200c\u200d])\p{Cf}`;
const ON_A_LINE = new RegExp(`(?:${UNSEEN})+`, 'gu');
const IN_A_TEXT = new RegExp(String.raw`(?![\n\t])(?:${UNSEEN})`, 'gu');
const IN_JSON = /[\x7f-\x9f\p{Cf}\p{Zl}\p{Zp}]/gu;

/** On one line, without what a terminal acts on: texts of models and callers move no cursor and look like nothing else. */
export function toPrintable(text: string): string {
  return text.replace(ON_A_LINE, ' ');
}

/** As it is but for what a terminal acts on: lines and tabs stay. For what is read on a terminal, never for a pipe. */
export function toPrintableText(text: string): string {
  return text.replaceAll('\r\n', '\n').replace(IN_A_TEXT, ' ');
}

/** A line of JSON. What a terminal would act on is escaped, which changes nothing for whoever parses it. */
export function toJsonLine(value: unknown): string {
  const escapeUnits = (char: string) =>
    char
      .split('')
      .map((unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, '0')}`)
      .join('');
  return `${JSON.stringify(value).replace(IN_JSON, escapeUnits)}\n`;
}
