// What the table shows as CSV (RFC 4180), made in the page: every amount with every digit.
import type { CostRow } from '#client/client.ts';
import type { CostAnswer } from './cost-report.ts';
import { keyOf, type Names, nameOf } from './group-rows.tsx';

const MEASURES = [
  'call_count',
  'input_tokens',
  'cached_input_tokens',
  'cache_creation_input_tokens',
  'cache_creation_1h_input_tokens',
  'output_tokens',
  'reasoning_tokens',
  'unpriced_call_count',
  'stamped_cost_usd',
  'cost_usd',
  'planner_cost_usd',
  'worker_cost_usd',
] as const satisfies readonly (keyof CostRow)[];

export function csvOf(answer: CostAnswer, names: Names): string {
  const { question, groups } = answer;
  const first = groups.data[0];
  const measures = MEASURES.filter((name) => first?.[name] !== undefined);
  const lines = groups.data.map((row) => {
    const key = keyOf(question, row);
    return [text(key ?? ''), text(nameOf(question, key, names)), ...measures.map((name) => String(row[name]))];
  });
  return [[question.group, 'name', ...measures], ...lines].map((cells) => `${cells.join(',')}\r\n`).join('');
}

export function csvName({ question, groups }: CostAnswer): string {
  const day = (time: string) => time.slice(0, 10);
  return `metis-cost-by-${question.group}-${day(groups.window.start)}-${day(groups.window.end)}.csv`;
}

/** Lets the browser keep `content` as a file; nothing is sent anywhere. */
export function offerFile(name: string, content: string): void {
  const url = URL.createObjectURL(new Blob([content], { type: 'text/csv' }));
  const link = document.createElement('a');
  link.href = url;
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(url), 0);
}

/** Titles are strangers' text: a spreadsheet must not take them for formulas. */
function text(cell: string): string {
  const harmless = /^[=+\-@\t\r]/.test(cell) ? `'${cell}` : cell;
  return /[",\r\n]/.test(harmless) ? `"${harmless.replaceAll('"', '""')}"` : harmless;
}
