// Exports of providers: how each form is read, what is refused, and the likely reason of each difference (22 §6).
import { describe, expect, it } from 'vitest';
import { compareBills } from '#core/policy/reconcile/compare-bill.ts';
import { parseAmount } from '#core/policy/reconcile/export-text.ts';
import { readExport } from '#core/policy/reconcile/read-export.ts';
import type { LedgerDay } from '#protocol/analytics.ts';
import { fromPusd, toPusd } from '#protocol/money.ts';
import { dayName, EXPORTS, GPT, HAIKU, ledgerDays, page, type Sum, sums } from '../../support/provider-exports.ts';

function compare(text: string, ledger: readonly LedgerDay[] = ledgerDays(), tolerance = 1000n) {
  const read = readExport(text);
  if (!read.ok) throw new Error(read.error);
  return compareBills([read.value], ledger, { since: null, tolerance });
}

describe('readExport', () => {
  const bucket = (result: object, over: object = {}) =>
    page([{ starting_at: '2026-05-20T00:00:00Z', ending_at: '2026-05-21T00:00:00Z', results: [result], ...over }]);
  const usage = { uncached_input_tokens: 1, output_tokens: 1, model: 'claude-haiku-4-5' };
  const cost = { currency: 'USD', amount: '1', model: 'claude-haiku-4-5', cost_type: 'tokens' };
  const header = 'usage_date_utc,model,cost_usd';

  it.each<[string, string, string]>([
    ['no export', '{"data": [{"a": 1}]}', 'is no export that is known'],
    ['no JSON', '{"data": [', 'is not valid JSON'],
    ['an empty file', '', 'is empty'],
    ['deep', '['.repeat(100_000), 'nested deeper than 12 levels'],
    [
      'a key that stands twice',
      bucket(usage).replace('"output_tokens": 1', '"output_tokens": 1, "output_tokens": 2'),
      'twice',
    ],
    ['NaN', bucket({ ...usage, output_tokens: 'NaN' }), 'output_tokens must be a whole number of tokens'],
    ['a fraction of a token', bucket({ ...usage, output_tokens: 1.5 }), 'must be a whole number of tokens'],
    ['a negative count', bucket({ ...usage, output_tokens: -1 }), 'must be a whole number of tokens'],
    ['a huge count', bucket({ ...usage, output_tokens: 1e300 }), 'must be a whole number of tokens'],
    ['a huge amount', bucket({ ...cost, amount: '1e99' }), 'amount must be a decimal amount'],
    ['an amount in words', bucket({ ...cost, amount: 'Infinity' }), 'amount must be a decimal amount'],
    ['an amount that is a list', bucket({ ...cost, amount: [1] }), 'amount must be a decimal amount'],
    ['other money', bucket({ ...cost, currency: 'EUR' }), 'must be in US dollars'],
    ['a month', bucket(usage, { ending_at: '2026-06-20T00:00:00Z' }), 'is longer than one day (UTC)'],
    ['another zone', bucket(usage, { starting_at: '2026-05-20T00:00:00+02:00' }), 'a day or a time in UTC'],
    ['no day', bucket(usage, { starting_at: '2026-02-31' }), 'a day or a time in UTC'],
    ['two forms', page([JSON.parse(bucket(usage)).data[0], JSON.parse(bucket(cost)).data[0]]), 'of another form'],
    ['a short row', `${header}\n2026-05-20,x`, 'has 2 cells at line 2, 3 in its header'],
    ['an open quote', `${header}\n"2026-05-20,x,1`, 'is not valid CSV at line 2'],
    ['a quote inside', `${header}\n2026-05-20,a"b,1`, 'is not valid CSV at line 2'],
    ['two columns of one name', `${header},model\n`, 'two columns of one name'],
    ['many columns', 'a,'.repeat(300), 'more than 200 columns'],
    ['many rows', `${header}\n${'2026-05-20,x,1\n'.repeat(300_001)}`, 'more than 300000 rows'],
  ])('refuses %s in one line', (_, text, reason) => {
    const read = readExport(text);
    expect(read).toEqual({ ok: false, error: expect.stringContaining(reason) });
    expect(read).toEqual({ ok: false, error: expect.not.stringContaining('\n') });
  });

  it('takes __proto__ as a name like any other', () => {
    const text = bucket({ ...usage, model: 'x' }).replace('"model"', '"__proto__": {"output_tokens": 9}, "model"');
    const read = readExport(text);
    expect(read).toMatchObject({ ok: true });
    expect(read.ok && read.value.sums.find((sum) => sum.class === 'output')?.amount).toBe(1n);
  });

  it('takes as long for a row of a large table as for one of a small table', () => {
    const readRows = (count: number) => {
      const rows = Array.from({ length: count }, (_, i) => `2026-05-20,Claude Haiku 4.5,0.0${i % 10}1`);
      const before = process.cpuUsage();
      const read = readExport([header, ...rows].join('\n'));
      expect(read.ok && read.value.sums.length).toBe(count);
      return process.cpuUsage(before).user / count;
    };
    const small = readRows(10_000);
    expect(readRows(250_000)).toBeLessThan(5 * small);
  });
});

describe('parseAmount', () => {
  it.each([
    ['0.06', 0, '0.06'],
    ['123.78912', 2, '1.2378912'],
    ['6.1e-05', 0, '0.000061'],
    ['1E3', 0, '1000'],
    ['0.06000000000000000123', 0, '0.06'],
    ['0.0000000000005', 0, '0.000000000001'],
    ['-3.5', 0, '-3.5'],
    ['7.', 0, '7'],
  ])('%s with the point moved by %i is %s', (text, shift, usd) => {
    expect(parseAmount(text, shift)).toBe(toPusd(usd));
  });

  it.each(['', 'NaN', 'Infinity', '1,5', '0x10', '1e999', '1e99', '--1', '9'.repeat(41), ' 1', '1e'])(
    'refuses %j',
    (text) => expect(parseAmount(text)).toBeNull(),
  );
});

describe('compareBills', () => {
  it.each(Object.entries(EXPORTS))('finds no difference in an export of the ledger: %s', (_, build) => {
    const { differences, agreed } = compare(build());
    expect(differences).toEqual([]);
    expect(agreed).toBeGreaterThan(0);
  });

  it('is exact to the last digit of an amount', () => {
    const rows = sums('openai').map((sum) => (sum.day === 2 ? { ...sum, cost: sum.cost * 2n + 1n } : sum));
    const [{ cost }] = sums('openai').filter(({ day }) => day === 2) as [Sum];
    expect(compare(EXPORTS.openaiCost(rows)).differences).toMatchObject([
      { model: GPT, unit: 'usd', counted: cost, billed: cost * 2n + 1n },
    ]);
  });

  it('passes over what is within the tolerance', () => {
    const rows = sums('openai').map((sum) => ({ ...sum, cost: sum.cost + sum.cost / 500n }));
    const count = (tolerance: bigint) => compare(EXPORTS.openaiCost(rows), ledgerDays(), tolerance).differences.length;
    expect([0n, 1000n, 2000n].map(count)).toEqual([4, 4, 0]);
  });

  it.each<[string, Partial<LedgerDay>]>([
    ['unpriced', { unpriced_call_count: 1, tokens_usd: '0' }],
    ['fee unknown', { fees_unpriced_call_count: 1, tokens_usd: '0.01' }],
    ['surcharge unknown', { surcharge_unknown_call_count: 1, tokens_usd: '9' }],
    ['several agents in one sum', { rounds_unknown_call_count: 2, tokens_usd: '0.01' }],
    ['estimated usage', { usage_estimated_call_count: 1, tokens_usd: '9' }],
    ['calls outside this server', { tokens_usd: '0.01' }],
    ['no known reason', { tokens_usd: '9' }],
  ])('has the likely reason: %s', (reason, over) => {
    const ledger = ledgerDays(({ day, model }) => (day === 2 && model === GPT ? over : {}));
    expect(compare(EXPORTS.openaiCostCsv(), ledger).differences).toMatchObject([
      { day: dayName(2), model: null, class: 'cost', reasons: [reason] },
    ]);
  });

  it('takes no small difference beside a large day for a day border', () => {
    const ledger = ledgerDays(({ day, model, cost }) => ({
      ...(model === GPT && day === 1 && { tokens_usd: fromPusd(cost * 1000n) }),
    }));
    const rows = sums('openai').map((sum) => {
      if (sum.day === 1) return { ...sum, cost: sum.cost * 1000n };
      return sum.day === 2 ? { ...sum, cost: sum.cost + sum.cost / 10n } : sum;
    });
    expect(compare(EXPORTS.openaiCost(rows), ledger).differences).toMatchObject([
      { day: dayName(2), reasons: ['calls outside this server'] },
    ]);
  });

  it('finds a border beyond the days of the export', () => {
    const moved = sums('openai').map((sum) => (sum.day === 0 ? { ...sum, day: 1 } : sum));
    const found = compare(EXPORTS.openaiCostCsv(moved.filter(({ day }) => day === 1)));
    expect(found.differences).toMatchObject([{ day: dayName(1), reasons: ['day border'] }]);
  });

  it('has fees apart from the tokens, as those of the day', () => {
    const ledger = ledgerDays(({ day, model }) => (day === 1 && model === HAIKU ? { fees_usd: '0.06' } : {}));
    const report = JSON.parse(EXPORTS.anthropicCost());
    expect(compare(JSON.stringify(report), ledger).differences).toMatchObject([
      { day: dayName(1), model: null, class: 'fees', counted: toPusd('0.06'), reasons: ['not in the export'] },
    ]);
    report.data[1].results.push({ currency: 'USD', amount: '6', cost_type: 'web_search', model: null });
    expect(compare(JSON.stringify(report), ledger).differences).toEqual([]);
  });

  it('names a model that only the export has, and sums that are not by model', () => {
    const theirs = { ...sums('openai')[0]!, model: 'openai:gpt-elsewhere' };
    expect(compare(EXPORTS.openaiUsage([...sums('openai'), theirs])).differences).toMatchObject(
      ['input and writes', 'cached input', 'output'].map((name) => ({
        model: 'gpt-elsewhere-2025-08-07',
        class: name,
        counted: 0n,
        reasons: ['calls outside this server'],
      })),
    );
    const whole = EXPORTS.openaiUsage().replaceAll(/"model": ".*?"/g, '"model": null');
    expect(compare(whole)).toMatchObject({ differences: [], agreed: 12 });
  });
});
