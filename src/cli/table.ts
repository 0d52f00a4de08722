// A table of text that lines up and never exceeds its width.
import { clip, countColumns, pad, toPrintable } from './style.ts';

const MIN_TEXT = 4;
const GAP = 2;

export interface Column {
  readonly title: string;
  readonly align?: 'left' | 'right';
  /** Never cut: what people copy. */
  readonly whole?: boolean;
  /** A text says nothing with fewer columns than these. */
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
  const line = (row: readonly string[]) =>
    clip(
      kept
        .map((at, i) => pad(row[at] ?? '', widths[i]!, columns[at]!.align))
        .join(' '.repeat(GAP))
        .trimEnd(),
      width,
    );
  return [line(columns.map((c) => c.title)), rule, ...rows.map((row) => (row === null ? rule : line(row)))];
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
