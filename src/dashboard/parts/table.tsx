// Tables: a plain one for tens of rows, and one for thousands, of which only the rows in sight are drawn.
import type { ComponentChildren } from 'preact';
import { useLayoutEffect, useRef, useState } from 'preact/hooks';

export interface Column<T> {
  readonly id: string;
  readonly title: string;
  /** Numbers are aligned right. */
  readonly numeric?: boolean;
  readonly cell: (row: T) => ComponentChildren;
}

function HeadCell<T>({ column }: { readonly column: Column<T> }) {
  return (
    <th scope="col" data-column={column.id} class={cellClass(column)}>
      {column.title}
    </th>
  );
}

function BodyCell<T>({ column, row }: { readonly column: Column<T>; readonly row: T }) {
  return (
    <td data-column={column.id} class={cellClass(column)}>
      {column.cell(row)}
    </td>
  );
}

function cellClass<T>({ numeric }: Column<T>): string | undefined {
  if (numeric) return 'numeric';
  return undefined;
}

/** Scrolls sideways by itself where it is wider than its place. */
export function Table<T>(props: {
  readonly label: string;
  readonly columns: readonly Column<T>[];
  readonly rows: readonly T[];
  readonly rowKey: (row: T) => string;
}) {
  return (
    // A region that scrolls must be reachable by the keyboard.
    <section class="table-scroll" aria-label={props.label} tabIndex={0}>
      <table class="table">
        <thead>
          <tr>
            {props.columns.map((column) => (
              <HeadCell key={column.id} column={column} />
            ))}
          </tr>
        </thead>
        <tbody>
          {props.rows.map((row) => (
            <tr key={props.rowKey(row)}>
              {props.columns.map((column) => (
                <BodyCell key={column.id} column={column} row={row} />
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </section>
  );
}

/** Rows beyond the edges that are drawn too, so that scrolling shows no holes. */
const OVERSCAN = 8;
/** Rows before the end at which more are asked for. */
const LOAD_AHEAD = 40;

/**
 * A table of rows of one height with its own scroll bar. The CSS class `grid` gives the widths of the columns, which it
 * finds by `data-column`, and hides some where there is no room.
 */
export function LongTable<T>(props: {
  readonly label: string;
  readonly grid: string;
  readonly columns: readonly Column<T>[];
  readonly rows: readonly T[];
  readonly rowKey: (row: T) => string;
  readonly rowHeight: number;
  /** Called when the end comes near; the caller knows whether there is more. */
  readonly onNearEnd?: () => void;
}) {
  const { rows, rowHeight, columns } = props;
  const scroller = useRef<HTMLDivElement>(null);
  const [view, setView] = useState({ top: 0, height: 800 });

  useLayoutEffect(() => {
    const box = scroller.current;
    if (box === null) return;
    const measureView = () => setView({ top: box.scrollTop, height: box.clientHeight });
    const observer = new ResizeObserver(measureView);
    observer.observe(box);
    box.addEventListener('scroll', measureView, { passive: true });
    return () => {
      observer.disconnect();
      box.removeEventListener('scroll', measureView);
    };
  }, []);

  const first = Math.max(0, Math.floor(view.top / rowHeight) - OVERSCAN);
  const last = Math.min(rows.length, Math.ceil((view.top + view.height) / rowHeight) + OVERSCAN);
  const { onNearEnd } = props;
  const near = last >= rows.length - LOAD_AHEAD;
  useLayoutEffect(() => {
    if (near) onNearEnd?.();
  }, [near, onNearEnd]);

  return (
    <div class={`long-table ${props.grid}`} ref={scroller}>
      <table aria-label={props.label} aria-rowcount={rows.length + 1}>
        <thead>
          <tr aria-rowindex={1}>
            {columns.map((column) => (
              <HeadCell key={column.id} column={column} />
            ))}
          </tr>
        </thead>
        <tbody>
          {first > 0 && <Gap rows={first} height={rowHeight} />}
          {rows.slice(first, last).map((row, i) => (
            <tr key={props.rowKey(row)} aria-rowindex={first + i + 2} style={{ height: `${rowHeight}px` }}>
              {columns.map((column) => (
                <BodyCell key={column.id} column={column} row={row} />
              ))}
            </tr>
          ))}
          {last < rows.length && <Gap rows={rows.length - last} height={rowHeight} />}
        </tbody>
      </table>
    </div>
  );
}

/** The room of rows that are not drawn. */
function Gap({ rows, height }: { readonly rows: number; readonly height: number }) {
  return <tr class="gap" style={{ height: `${rows * height}px` }} />;
}
