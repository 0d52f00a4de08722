// One counter or histogram with labels, its lines in the text format of Prometheus, and its figures for whoever sends them elsewhere.

export type Labels = Readonly<Record<string, string>>;

interface Point<T> {
  readonly labels: Labels;
  readonly value: T;
}

/** One histogram's values: `counts` has one more than there are bounds, each value in one of them. */
export interface Spread {
  readonly counts: readonly number[];
  readonly sum: number;
  readonly count: number;
}

/** The figures of one name. */
export type Family = { readonly name: string; readonly help: string; readonly unit?: string } & (
  | { readonly type: 'counter' | 'gauge'; readonly whole: boolean; readonly points: readonly Point<number>[] }
  | { readonly type: 'histogram'; readonly bounds: readonly number[]; readonly points: readonly Point<Spread>[] }
);

export interface Sums {
  add(labels: Labels, amount?: bigint): void;
  lines(): string[];
  family(): Family;
}

/** @param show a sum as it is written, where it is no plain count */
export function createSums(name: string, help: string, show?: (sum: bigint) => string): Sums {
  const text = show ?? String;
  const sums = new Map<string, { readonly labels: Labels; sum: bigint }>();
  return {
    add(labels, amount = 1n) {
      const one = findSeries(sums, labels, () => ({ labels, sum: 0n }));
      one.sum += amount;
    },
    lines: () => [
      ...writeHead(name, help, 'counter'),
      ...sortSeries(sums).map(([labels, { sum }]) => `${name}{${labels}} ${text(sum)}`),
    ],
    family: () => ({
      ...{ name, help, type: 'counter', whole: show === undefined },
      points: [...sums.values()].map(({ labels, sum }) => ({ labels, value: Number(text(sum)) })),
    }),
  };
}

export interface Histogram {
  observe(labels: Labels, value: number): void;
  lines(): string[];
  family(): Family;
}

/**
 * @param bounds upper ones, ascending; `+Inf` is added
 * @param unit where the name does not say it
 */
export function createHistogram(name: string, help: string, bounds: readonly number[], unit?: string): Histogram {
  const series = new Map<string, { readonly labels: Labels; readonly counts: number[]; sum: number; count: number }>();
  return {
    observe(labels, value) {
      const one = findSeries(series, labels, () => ({ labels, counts: [...bounds, 0].map(() => 0), sum: 0, count: 0 }));
      const place = bounds.findIndex((bound) => value <= bound);
      const index = place < 0 ? bounds.length : place;
      one.counts[index] = (one.counts[index] ?? 0) + 1;
      one.sum += value;
      one.count += 1;
    },
    lines: () => [
      ...writeHead(name, help, 'histogram'),
      ...sortSeries(series).flatMap(([labels, { counts, sum, count }]) => {
        let below = 0;
        return [
          ...bounds.map((bound, i) => {
            below += counts[i] ?? 0;
            return `${name}_bucket{${labels},le="${bound}"} ${below}`;
          }),
          `${name}_bucket{${labels},le="+Inf"} ${count}`,
          `${name}_sum{${labels}} ${sum}`,
          `${name}_count{${labels}} ${count}`,
        ];
      }),
    ],
    family: () => ({
      ...{ name, help, type: 'histogram', bounds, ...(unit === undefined ? {} : { unit }) },
      points: [...series.values()].map(({ labels, counts, sum, count }) => ({
        labels,
        value: { counts: [...counts], sum, count },
      })),
    }),
  };
}

function findSeries<T>(series: Map<string, T>, labels: Labels, empty: () => T): T {
  const key = formatLabels(labels);
  const found = series.get(key) ?? empty();
  series.set(key, found);
  return found;
}

function writeHead(name: string, help: string, type: string): string[] {
  return [`# HELP ${name} ${help}`, `# TYPE ${name} ${type}`];
}

function sortSeries<T>(series: ReadonlyMap<string, T>): [string, T][] {
  return [...series].sort(([a], [b]) => (a < b ? -1 : 1));
}

function formatLabels(labels: Labels): string {
  return Object.entries(labels)
    .map(([name, value]) => `${name}="${value.replace(/[\\"]/g, '\\$&').replaceAll('\n', '\\n')}"`)
    .join(',');
}
