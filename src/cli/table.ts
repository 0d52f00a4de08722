// A table of text that lines up and never exceeds its width.
import { padded } from './style.ts';

const MIN_TEXT = 4;

export interface Column {
  readonly title: string;
  readonly align?: 'left' | 'right';
  /** Never cut: what people copy. */
  readonly whole?: boolean;
}

/**
 * Header, a rule, then the rows; null is a rule. Text columns give way, the widest first, when the whole exceeds `width`.
 * Lines carry no trailing spaces.
 */
export function tableLines(
  columns: readonly Column[],
  rows: readonly (readonly string[] | null)[],
  width: number,
): string[] {
  const cells = rows.filter((row) => row !== null);
  const widths = columns.map((column, i) =>
    Math.max(column.title.length, ...cells.map((row) => (row[i] ?? '').length)),
  );
  const gaps = 2 * (columns.length - 1);
  let excess = widths.reduce((sum, w) => sum + w, gaps) - width;
  while (excess-- > 0) {
    const texts = columns.map((column, i) => (column.align === 'right' || column.whole ? 0 : widths[i]!));
    const widest = texts.indexOf(Math.max(...texts));
    if (texts[widest]! <= MIN_TEXT) break;
    widths[widest]!--;
  }
  const rule = '─'.repeat(
    Math.min(
      width,
      widths.reduce((sum, w) => sum + w, gaps),
    ),
  );
  const line = (row: readonly string[]) =>
    columns
      .map((column, i) => padded(row[i] ?? '', widths[i]!, column.align))
      .join('  ')
      .trimEnd()
      .slice(0, width);
  return [line(columns.map((c) => c.title)), rule, ...rows.map((row) => (row === null ? rule : line(row)))];
}
