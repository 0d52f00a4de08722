// How a window is cut into rollup units, and the order of rows.
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import {
  buildSortTerms,
  compareSortValues,
  DAY_MS,
  findGrain,
  fromSortKey,
  HOUR_MS,
  keyNames,
  type Segment,
  splitWholeDays,
  splitWindow,
  toSortKey,
} from '#core/policy/analytics/rollup.ts';
import { NO_FILTER } from '#store/report/cost-sql.ts';

const at = (text: string) => Date.parse(text);
const WIDE = { first: at('2020-01-01T00:00:00Z'), last: at('2030-01-01T00:00:00Z') };

function milliseconds({ source, from, to }: Segment): [number, number] {
  const unit = { calls: 1, hours: HOUR_MS, parent_days: DAY_MS, days: DAY_MS }[source];
  return [from * unit, to * unit];
}

describe('splitWindow', () => {
  it('takes whole days and hours from the rollups and only the ragged ends from the calls', () => {
    const window = { from: at('2026-05-01T10:30:00Z'), to: at('2026-05-04T02:00:00.001Z') };
    expect(splitWindow(window, WIDE, 'day')).toEqual([
      { source: 'calls', from: at('2026-05-01T10:30:00Z'), to: at('2026-05-01T11:00:00Z') },
      { source: 'hours', from: at('2026-05-01T11:00:00Z') / HOUR_MS, to: at('2026-05-02T00:00:00Z') / HOUR_MS },
      { source: 'days', from: at('2026-05-02T00:00:00Z') / DAY_MS, to: at('2026-05-04T00:00:00Z') / DAY_MS },
      { source: 'hours', from: at('2026-05-04T00:00:00Z') / HOUR_MS, to: at('2026-05-04T02:00:00Z') / HOUR_MS },
      { source: 'calls', from: at('2026-05-04T02:00:00Z'), to: at('2026-05-04T02:00:00.001Z') },
    ]);
  });

  it('needs no calls when a bound lies beyond what is recorded', () => {
    const recorded = { first: at('2026-05-01T10:30:00Z'), last: at('2026-05-02T20:15:00Z') };
    const window = { from: 0, to: at('2026-05-02T20:15:00.001Z') };
    expect(splitWindow(window, recorded, 'day')).toEqual([
      { source: 'days', from: at('2026-05-01T00:00:00Z') / DAY_MS, to: at('2026-05-03T00:00:00Z') / DAY_MS },
    ]);
    expect(splitWindow({ ...window, to: recorded.last }, recorded, 'day').at(-1)?.source).toBe('calls');
  });

  it('reads a window inside one hour from the calls alone', () => {
    const window = { from: at('2026-05-01T10:10:00Z'), to: at('2026-05-01T10:20:00Z') };
    expect(splitWindow(window, WIDE, 'day')).toEqual([{ source: 'calls', ...window }]);
  });

  it('uses no day when a query needs hours', () => {
    const window = { from: at('2026-05-01T00:00:00Z'), to: at('2026-05-09T00:00:00Z') };
    expect(splitWindow(window, WIDE, 'hour').map((s) => s.source)).toEqual(['hours']);
  });

  it('is empty when nothing is recorded in reach of the window', () => {
    expect(splitWindow({ from: 0, to: 10 }, null, 'day')).toEqual([]);
    expect(splitWindow({ from: 0, to: WIDE.first }, WIDE, 'day')).toEqual([]);
    expect(splitWindow({ from: WIDE.last + 1, to: WIDE.last + 2 }, WIDE, 'day')).toEqual([]);
  });

  it('covers every recorded moment of any window exactly once, and no other', () => {
    const moment = fc.integer({ min: 0, max: 10 * DAY_MS });
    fc.assert(
      fc.property(
        fc.uniqueArray(moment, { minLength: 2, maxLength: 2 }),
        fc.array(moment, { minLength: 1, maxLength: 20 }),
        fc.constantFrom('hour' as const, 'parent_day' as const, 'day' as const),
        (bounds, times, grain) => {
          const window = { from: Math.min(...bounds), to: Math.max(...bounds) };
          const recorded = { first: Math.min(...times), last: Math.max(...times) };
          const ranges = splitWindow(window, recorded, grain).map(milliseconds);
          const { days, rest } = splitWholeDays(window, recorded);
          const priced: [number, number][] = rest.map(({ from, to }) => [from, to]);
          if (days) priced.push([days.from * DAY_MS, days.to * DAY_MS]);
          for (const time of times) {
            for (const cut of [ranges, priced]) {
              const hits = cut.filter(([from, to]) => from <= time && time < to).length;
              expect(hits).toBe(window.from <= time && time < window.to ? 1 : 0);
            }
          }
        },
      ),
    );
  });
});

describe('keyNames and grainOf', () => {
  it('names each key column once', () => {
    expect(keyNames(['model', 'provider'])).toEqual(['model', 'provider']);
    expect(keyNames(['day', 'session'])).toEqual(['day', 'session_id']);
    expect(keyNames([])).toEqual([]);
  });

  it('asks for hours exactly when sessions or hours are told apart, for trees when trees are', () => {
    expect(findGrain({ group_by: ['parent_session'], filter: NO_FILTER })).toBe('parent_day');
    expect(findGrain({ group_by: ['day', 'root_session'], filter: NO_FILTER })).toBe('parent_day');
    expect(findGrain({ group_by: ['day'], filter: { ...NO_FILTER, parent_session: 'sess_1' } })).toBe('parent_day');
    expect(findGrain({ group_by: ['workspace', 'worker_name'], filter: NO_FILTER })).toBe('day');
    expect(findGrain({ group_by: ['day', 'model'], filter: { ...NO_FILTER, model: 'a:b' } })).toBe('day');
    expect(findGrain({ group_by: ['day', 'session'], filter: NO_FILTER })).toBe('hour');
    expect(findGrain({ group_by: ['hour'], filter: NO_FILTER })).toBe('hour');
    expect(findGrain({ group_by: ['day', 'effort'], filter: NO_FILTER })).toBe('call');
    expect(findGrain({ group_by: [], filter: { ...NO_FILTER, session: 'sess_1' } })).toBe('hour');
  });
});

describe('buildSortTerms', () => {
  it('breaks ties by the key columns ascending', () => {
    expect(buildSortTerms(['model'], 'cost', 'desc')).toEqual([
      { by: 'cost', desc: true },
      { by: 'model', desc: false },
      { by: 'provider', desc: false },
    ]);
  });

  it('orders a time bucket with a second dimension by bucket, then cost descending', () => {
    expect(buildSortTerms(['day', 'worker_name'], 'key', 'asc')).toEqual([
      { by: 'day', desc: false },
      { by: 'cost', desc: true },
      { by: 'worker_name', desc: false },
    ]);
  });
});

describe('compareSortValues', () => {
  it('sorts on the exact integer, never on its text', () => {
    const compare = compareSortValues([{ by: 'cost', desc: true }]);
    expect([[9n], [10n], [2n ** 62n], [2n ** 62n + 1n]].sort(compare)).toEqual([
      [2n ** 62n + 1n],
      [2n ** 62n],
      [10n],
      [9n],
    ]);
  });

  it('puts a missing key last in both directions, the others in byte order', () => {
    const words = [['b'], [''], ['\u{1f600}'], ['\uffee'], ['B']];
    const sorted = (desc: boolean) => [...words].sort(compareSortValues([{ by: 'worker_name', desc }])).flat();
    expect(sorted(false)).toEqual(['B', 'b', '\uffee', '\u{1f600}', '']);
    expect(sorted(true)).toEqual(['\u{1f600}', '\uffee', 'b', 'B', '']);
  });
});

describe('sort keys', () => {
  const terms = buildSortTerms(['day', 'worker_name'], 'key', 'asc');

  it('survive the way through a cursor', () => {
    const values = [20_000n, 9_223_372_036_854_775_807n, ''] as const;
    expect(fromSortKey(terms, toSortKey(values))).toEqual(values);
  });

  it('are refused when they do not fit the order', () => {
    for (const key of [
      ['1', '2'],
      ['1', '2', 3],
      ['x', '2', ''],
      ['1', '9223372036854775808', ''],
      ['1', '1.5', ''],
    ]) {
      expect(fromSortKey(terms, key)).toBeNull();
    }
  });
});
