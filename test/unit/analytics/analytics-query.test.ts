// Query parameters of the analytics endpoints.
import { describe, expect, it } from 'vitest';
import {
  type CostRequest,
  encodeCursor,
  parseCostQuery,
  parseSavingsQuery,
  parseTraceQuery,
  type RawQuery,
} from '#core/policy/analytics/query.ts';

const NOW = Date.parse('2026-06-10T12:00:00Z');
const DAY = 86_400_000;

function cost(raw: RawQuery): CostRequest {
  const parsed = parseCostQuery(raw, NOW);
  if (!parsed.ok) throw new Error(JSON.stringify(parsed.error));
  return parsed.value;
}

function faults(
  raw: RawQuery,
  parse: (raw: RawQuery, now: number) => ReturnType<typeof parseCostQuery> = parseCostQuery,
) {
  const parsed = parse(raw, NOW);
  return parsed.ok ? [] : parsed.error.map((issue) => issue.path);
}

function message(raw: RawQuery): string | undefined {
  const parsed = parseCostQuery(raw, NOW);
  return parsed.ok ? undefined : parsed.error[0]?.message;
}

describe('window', () => {
  it('is the last seven days by default, and each bound can be given alone', () => {
    expect(cost({}).query.window).toEqual({ from: NOW - 7 * DAY, to: NOW });
    expect(cost({ from: '2026-06-01T00:00:00Z' }).query.window).toEqual({ from: NOW - 9.5 * DAY, to: NOW });
    expect(cost({ to: '2026-06-10T00:00:00Z' }).query.window).toEqual({ from: NOW - 7 * DAY, to: NOW - DAY / 2 });
    expect(cost({ from: 'all' }).query.window).toEqual({ from: 0, to: NOW });
  });

  it('reads offsets and milliseconds', () => {
    const { from, to } = cost({ from: '2026-06-01T02:00:00.5+02:00', to: '2026-06-01T00:00:00.501Z' }).query.window;
    expect(from).toBe(Date.parse('2026-06-01T00:00:00.500Z'));
    expect(to - from).toBe(1);
  });

  it('refuses dates, naive times, impossible times and more than milliseconds', () => {
    for (const from of [
      '2026-05-01',
      '2026-05-01T00:00:00',
      '2026-02-30T00:00:00Z',
      '2026-05-01T24:00:00Z',
      '2026-05-01T00:00:00.0001Z',
      '2026-05-01T00:00:00+24:00',
      'yesterday',
      '',
    ]) {
      expect(faults({ from })).toEqual(['from']);
    }
    expect(faults({ to: 'all' })).toEqual(['to']);
  });

  it('says that a plus must be percent-encoded when a space took its place', () => {
    expect(message({ from: '2026-05-01T00:00:00 02:00' })).toContain('%2B');
    expect(message({ pricing: 'A o1' })).toContain('%2B');
  });

  it('refuses an empty window, naming the bound that was given', () => {
    expect(faults({ from: '2026-06-01T00:00:00Z', to: '2026-06-01T00:00:00Z' })).toEqual(['from']);
    expect(faults({ from: '2026-06-02T00:00:00Z', to: '2026-06-01T00:00:00Z' })).toEqual(['from']);
    expect(faults({ to: '2026-01-01T00:00:00Z' })).toEqual(['to']);
  });
});

describe('parseCostQuery', () => {
  it('orders by cost descending, a time bucket by its key', () => {
    expect(cost({}).query).toMatchObject({ group_by: ['model'], order: 'cost', dir: 'desc', limit: 1000, after: null });
    expect(cost({ group_by: 'day,model' }).query).toMatchObject({ order: 'key', dir: 'asc' });
    expect(cost({ group_by: 'model,day' }).query).toMatchObject({ order: 'cost', dir: 'desc' });
    expect(cost({ group_by: 'none' }).query.group_by).toEqual([]);
  });

  it('names every faulty parameter, all at once', () => {
    expect(faults({ group_by: 'DROP TABLE', order: ';', limit: '0', session: 'a;b' })).toEqual([
      'group_by',
      'order',
      'limit',
      'session',
    ]);
    for (const [name, value] of Object.entries({
      group_by: 'model,none',
      order: 'COST',
      dir: 'up',
      limit: 'x',
      include_workers: 'maybe',
      model: "x' OR 1=1",
      provider: 'a b',
      pricing: 'a;b',
      cursor: '!!',
      parent_session: '',
      workspace_hash: 'x/y',
    })) {
      expect(faults({ [name]: value })).toEqual([name]);
    }
    for (const group_by of ['model,model', 'model,day,session', 'day,hour', 'model,', 'constructor']) {
      expect(faults({ group_by })).toEqual(['group_by']);
    }
    for (const limit of ['-1', '1.5', ' 1', '1e3', '99999999999999999999'])
      expect(faults({ limit })).toEqual(['limit']);
  });

  it('clamps a limit above the maximum', () => {
    expect(cost({ limit: '999999' }).query.limit).toBe(10_000);
  });

  it('reads every spelling of a boolean', () => {
    for (const text of ['true', '1', 'YES'])
      expect(cost({ include_workers: text }).query.filter.include_workers).toBe(true);
    for (const text of ['False', '0', 'no'])
      expect(cost({ include_workers: text }).query.filter.include_workers).toBe(false);
    expect(cost({}).query.filter.include_workers).toBeNull();
  });

  it('refuses a parameter given twice and only warns of an unknown one', () => {
    expect(faults({ model: ['a:b', 'a:b'] })).toEqual(['model']);
    expect(cost({ modell: 'a:b' }).warnings).toEqual(['unknown parameter ignored: modell']);
  });
});

describe('cursors', () => {
  const first = cost({ group_by: 'model', from: '2026-06-01T00:00:00Z' });
  const cursor = encodeCursor(first, ['5', 'a:b', 'a']);

  it('carry the window of the first page', () => {
    const later = parseCostQuery({ group_by: 'model', cursor }, NOW + DAY);
    expect(later.ok && later.value.query).toMatchObject({ window: first.query.window, after: ['5', 'a:b', 'a'] });
    expect(cost({ group_by: 'model', cursor, from: '2026-06-01T00:00:00Z', limit: '3' }).query.after).not.toBeNull();
  });

  it('are refused with another window or other parameters', () => {
    expect(faults({ group_by: 'model', cursor, from: '2026-06-02T00:00:00Z' })).toEqual(['cursor']);
    expect(faults({ group_by: 'model', cursor, to: '2026-06-02T00:00:00Z' })).toEqual(['cursor']);
    expect(faults({ group_by: 'model', cursor, include_workers: 'false' })).toEqual(['cursor']);
    expect(faults({ group_by: 'model', cursor, pricing: 'current' })).toEqual(['cursor']);
    expect(faults({ group_by: 'provider', cursor })).toEqual(['cursor']);
  });

  it('are refused when they are not ours', () => {
    for (const text of ['', 'null', '[]', '{"w":[0,1]}', '{"w":[0,1],"h":"x","k":[1]}']) {
      expect(faults({ cursor: Buffer.from(text).toString('base64url') })).toEqual(['cursor']);
    }
  });
});

describe('parseSavingsQuery', () => {
  it('leaves the baseline to be looked up and ignores what is not its own', () => {
    const parsed = parseSavingsQuery({ baseline: 'sonnet', include_workers: 'no', group_by: 'model' }, NOW);
    expect(parsed.ok && parsed.value).toMatchObject({
      baseline: 'sonnet',
      query: { filter: { include_workers: false } },
      warnings: ['unknown parameter ignored: group_by'],
    });
    const faulty = parseSavingsQuery({ baseline: 'a b' }, NOW);
    expect(faulty.ok ? [] : faulty.error.map((i) => i.path)).toEqual(['baseline']);
  });
});

describe('parseTraceQuery', () => {
  it('takes at most 31 days, or everything', () => {
    const paths = (raw: RawQuery) => {
      const parsed = parseTraceQuery(raw, NOW);
      return parsed.ok ? [] : parsed.error.map((issue) => issue.path);
    };
    const daysAgo = (days: number) => new Date(NOW - days * DAY).toISOString();
    expect(paths({ from: daysAgo(31) })).toEqual([]);
    expect(paths({ from: daysAgo(32) })).toEqual(['from']);
    expect(paths({ from: 'all' })).toEqual([]);
    expect(paths({ session: 'a;b' })).toEqual(['session']);
    expect(paths({ worker_name: 'a;b' })).toEqual([]);
  });
});
