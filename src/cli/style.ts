// Colours, or none: the one place that writes escape codes for text.
import { styleText } from 'node:util';

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

/** Exactly `width` characters: padded with spaces, or cut with an ellipsis. */
export function padded(text: string, width: number, align: 'left' | 'right' = 'left'): string {
  if (width <= 0) return '';
  if (text.length > width) return `${text.slice(0, width - 1)}…`;
  return align === 'left' ? text.padEnd(width) : text.padStart(width);
}

/** `12345` -> `12,345`. */
export function grouped(count: number): string {
  return String(count).replace(/\B(?=(\d{3})+$)/g, ',');
}

/** On one line and without control characters: texts of models and callers move no cursor. */
export function printable(text: string): string {
  return text.replace(/\p{Cc}+/gu, ' ');
}
