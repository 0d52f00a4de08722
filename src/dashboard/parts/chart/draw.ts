// The drawing of bars on a canvas by chart.js, which is loaded with the first view that shows a chart.
import { BarController, BarElement, CategoryScale, Chart, LinearScale, Tooltip } from 'chart.js';
import { axisUsd, exactUsd } from '#dashboard/format/format.ts';
import type { Bar } from './spend-bars.ts';

Chart.register(BarController, BarElement, CategoryScale, LinearScale, Tooltip);

export interface Colours {
  readonly planner: string;
  readonly workers: string;
  readonly text: string;
  readonly line: string;
  readonly ground: string;
}

export interface Drawing {
  show(bars: readonly Bar[], colours: Colours): void;
  end(): void;
}

/** Heights are floats, since pixels are; the label of a bar has the exact amount. */
export function drawBars(canvas: HTMLCanvasElement): Drawing {
  let shown: readonly Bar[] = [];
  let worn: Colours | null = null;
  const font = { family: getComputedStyle(canvas).fontFamily, size: 11 };
  const side = (label: string, of: 'planner' | 'workers') => ({
    label,
    data: [] as number[],
    stack: 'spend',
    maxBarThickness: 36,
    borderRadius: 2,
    backgroundColor: () => worn?.[of],
  });
  const chart = new Chart(canvas, {
    type: 'bar',
    data: { labels: [] as string[], datasets: [side('Planner', 'planner'), side('Workers', 'workers')] },
    options: {
      animation: false,
      maintainAspectRatio: false,
      interaction: { mode: 'index', intersect: false },
      plugins: {
        tooltip: {
          padding: 10,
          cornerRadius: 6,
          boxPadding: 4,
          titleFont: font,
          bodyFont: font,
          callbacks: {
            title: ([item]) => (item === undefined ? '' : `${shown[item.dataIndex]?.bucket.replace('T', ' ')} UTC`),
            label: ({ dataIndex, datasetIndex, dataset }) => {
              const bar = shown[dataIndex];
              return `${dataset.label}  ${exactUsd((datasetIndex === 0 ? bar?.planner : bar?.workers) ?? '0')}`;
            },
          },
        },
      },
      scales: {
        x: { stacked: true, grid: { display: false }, ticks: { font, maxRotation: 0, autoSkipPadding: 16 } },
        y: {
          stacked: true,
          beginAtZero: true,
          border: { display: false },
          ticks: {
            font,
            maxTicksLimit: 5,
            callback: (value, _, all) =>
              axisUsd(
                Number(value),
                all.map((tick) => tick.value),
              ),
          },
        },
      },
    },
  });
  return {
    show(bars, colours) {
      shown = bars;
      worn = colours;
      const [planner, workers] = chart.data.datasets;
      const { x, y } = chart.options.scales ?? {};
      const tooltip = chart.options.plugins?.tooltip;
      if (!planner || !workers || !x?.ticks || !y?.ticks || !y.grid || !x.border || !tooltip) return;
      chart.data.labels = bars.map(({ label }) => label);
      planner.data = bars.map((bar) => Number(bar.planner));
      workers.data = bars.map((bar) => Number(bar.workers));
      x.ticks.color = colours.text;
      y.ticks.color = colours.text;
      x.border.color = colours.line;
      y.grid.color = colours.line;
      tooltip.backgroundColor = colours.text;
      tooltip.titleColor = colours.ground;
      tooltip.bodyColor = colours.ground;
      chart.update('none');
    },
    end: () => chart.destroy(),
  };
}
