// Spend over time, stacked by planner and workers: a picture, and the same as a table.
import { useEffect, useId, useRef, useState } from 'preact/hooks';
import { exactUsd, formatCount } from '#dashboard/format/format.ts';
import { Money, MoneySum } from '../labels.tsx';
import { type Column, Table } from '../table.tsx';
import type { Colours, Drawing } from './draw.ts';
import type { Bar } from './spend-bars.ts';

// Spend over time as bars: every bucket of the window, planner and workers, summed exactly.

const COLUMNS: readonly Column<Bar>[] = [
  { id: 'bucket', title: 'Time (UTC)', cell: (bar) => bar.bucket.replace('T', ' ') },
  { id: 'planner', title: 'Planner', numeric: true, cell: (bar) => <Money usd={bar.planner} exact /> },
  { id: 'workers', title: 'Workers', numeric: true, cell: (bar) => <Money usd={bar.workers} exact /> },
  { id: 'total', title: 'Total', numeric: true, cell: (bar) => <MoneySum usd={[bar.planner, bar.workers]} /> },
];

export function SpendChart(props: { readonly title: string; readonly bars: readonly Bar[]; readonly total: string }) {
  const { bars } = props;
  const figure = useRef<HTMLElement>(null);
  const canvas = useRef<HTMLCanvasElement>(null);
  const [drawing, setDrawing] = useState<Drawing | null>(null);
  const dark = useDark();
  const heading = useId();

  useEffect(() => {
    let made: Drawing | null = null;
    let gone = false;
    void import('./draw.ts').then(
      ({ drawBars }) => {
        if (gone || canvas.current === null) return;
        made = drawBars(canvas.current);
        setDrawing(made);
      },
      // The server was away: the table has the same data.
      () => {},
    );
    return () => {
      gone = true;
      made?.end();
    };
  }, []);
  // Colours are those of the style sheet, in the scheme of the moment.
  useEffect(() => {
    if (figure.current !== null) drawing?.show(bars, readColours(figure.current));
  }, [drawing, bars, dark]);

  return (
    <figure class="panel chart" ref={figure} aria-labelledby={heading}>
      <figcaption>
        <h2 id={heading}>{props.title}</h2>
        <span class="legend">
          <span class="swatch planner" aria-hidden="true" /> Planner
          <span class="swatch workers" aria-hidden="true" /> Workers
        </span>
      </figcaption>
      <div class="chart-canvas">
        <canvas
          ref={canvas}
          role="img"
          aria-label={`${formatCount(bars.length, 'bar')}, ${exactUsd(props.total)} in total; the table below shows the same data`}
        />
      </div>
      <details data-scrolls>
        <summary>Show as table</summary>
        <Table label={props.title} columns={COLUMNS} rows={bars} rowKey={(bar) => bar.bucket} />
      </details>
    </figure>
  );
}

function readColours(figure: HTMLElement): Colours {
  const colour = (selector: string, of: 'color' | 'backgroundColor' | 'borderTopColor') => {
    const element = selector === '' ? figure : figure.querySelector(selector);
    if (element === null) return '';
    return getComputedStyle(element)[of];
  };
  return {
    planner: colour('.swatch.planner', 'backgroundColor'),
    workers: colour('.swatch.workers', 'backgroundColor'),
    text: colour('.legend', 'color'),
    line: colour('', 'borderTopColor'),
    ground: colour('', 'backgroundColor'),
  };
}

const DARK = '(prefers-color-scheme: dark)';

/** By the switch of the page, else by the system. */
function isDark(): boolean {
  const { theme } = document.documentElement.dataset;
  if (theme === 'light' || theme === 'dark') return theme === 'dark';
  return matchMedia(DARK).matches;
}

function useDark(): boolean {
  const [dark, setDark] = useState(isDark);
  useEffect(() => {
    const query = matchMedia(DARK);
    const updateDark = () => setDark(isDark());
    const observer = new MutationObserver(updateDark);
    observer.observe(document.documentElement, { attributeFilter: ['data-theme'] });
    query.addEventListener('change', updateDark);
    return () => {
      observer.disconnect();
      query.removeEventListener('change', updateDark);
    };
  }, []);
  return dark;
}
