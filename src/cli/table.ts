// A table of text that lines up and never exceeds its width.
import { padded } from './style.ts';

export interface Column {
  readonly title: string;
  readonly align?: 'left' | 'right';
}

/**
 * Header, a rule, then the rows; null is a rule. The first column gives way when the whole is wider than `width`.
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
  const excess = widths.reduce((sum, w) => sum + w, gaps) - width;
  if (excess > 0) widths[0] = Math.max(4, widths[0]! - excess);
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
