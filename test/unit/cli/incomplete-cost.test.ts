// What `metis cost` says of calls whose cost is not complete (08 §12).
import { expect, test } from 'vitest';
import { composeCostCells, describeIncomplete } from '#cli/cost.ts';

const totals = {
  call_count: 2,
  input_tokens: 10,
  cache_creation_input_tokens: 0,
  cached_input_tokens: 0,
  output_tokens: 1,
  cost_usd: '0.03',
  unpriced_call_count: 2,
  fees_unpriced_call_count: 2,
  surcharge_unknown_call_count: 1,
  rounds_unknown_call_count: 0,
} as Parameters<typeof describeIncomplete>[0];

test('each reason has a line, and a known part of the cost is shown', () => {
  expect(describeIncomplete(totals)).toEqual([
    'Cost not complete: 2 of the calls used a provider tool without a fee in the price table.',
    'Cost not complete: 1 of the calls ran under terms without a multiplier in the price table.',
  ]);
  expect(composeCostCells(totals).at(-1)).toBe('$0.03 + 2 unpriced');
  expect(composeCostCells({ ...totals, cost_usd: '0' }).at(-1)).toBe('unpriced');
  expect(describeIncomplete({ ...totals, fees_unpriced_call_count: 0, surcharge_unknown_call_count: 0 })).toEqual([]);
});
