// `metis cost`: what model calls cost, grouped; every figure is the server's (17 §2, 07).
import { type CostRow, createMetisClient } from '../client/client.ts';
import type { ServerAddress } from '../client/request.ts';
import { sinceTime } from './since.ts';
import { grouped, printable } from './style.ts';
import { type Column, tableLines } from './table.ts';
import { askServer, type ServerFlags, styleOf, type Terminal, widthOf } from './terminal.ts';

export const COST_COLUMNS: readonly Column[] = [
  { title: 'calls', align: 'right' },
  { title: 'input', align: 'right' },
  { title: 'written', align: 'right' },
  { title: 'cached', align: 'right' },
  { title: 'output', align: 'right' },
  { title: 'cost', align: 'right' },
];
type Figures = Pick<
  CostRow,
  'call_count' | 'input_tokens' | 'cache_creation_input_tokens' | 'cached_input_tokens' | 'output_tokens' | 'cost_usd'
>;

/** The cells under `COST_COLUMNS`. */
export function costCells(row: Figures): string[] {
  return [
    grouped(row.call_count),
    grouped(row.input_tokens),
    grouped(row.cache_creation_input_tokens),
    grouped(row.cached_input_tokens),
    grouped(row.output_tokens),
    `$${row.cost_usd}`,
  ];
}

/** The field of a row that a dimension fills; the others are called as the dimension. */
const KEY_FIELDS: Readonly<Record<string, keyof CostRow>> = {
  session: 'session_id',
  parent_session: 'parent_session_id',
  root_session: 'root_session_id',
  day: 'bucket',
  hour: 'bucket',
  workspace: 'workspace_hash',
};
const MAX_ROWS = 10_000;

export interface CostFlags extends Pick<ServerFlags, 'json'> {
  /** One or two dimensions separated by a comma, or `none`. */
  readonly groupBy: string;
  /** As `sinceTime` takes it. */
  readonly since: string;
  /** A planner's session: only it and its workers. */
  readonly session?: string;
}

/** Exit code: 0, or 1 when the server could not say. With `json`, the server's answer on one line. */
export async function showCost(terminal: Terminal, server: ServerAddress, flags: CostFlags): Promise<number> {
  const { stdout } = terminal;
  return askServer(terminal, server, async () => {
    const report = await createMetisClient(server).getCost<string>({
      group_by: flags.groupBy,
      from: sinceTime(flags.since) ?? flags.since,
      parent_session: flags.session,
      limit: MAX_ROWS,
    });
    if (flags.json) {
      stdout.write(`${JSON.stringify(report)}\n`);
      return 0;
    }
    const dimensions = flags.groupBy === 'none' ? [''] : flags.groupBy.split(',').map((name) => name.trim());
    const rows = Array.isArray(report.data) ? report.data : [];
    const keys = (row: CostRow) => dimensions.map((name) => printable(keyOf(row, name)));
    const lines = tableLines(
      [...dimensions.map((title) => ({ title })), ...COST_COLUMNS],
      [
        ...rows.map((row) => [...keys(row), ...costCells(row)]),
        ...(rows.length === 0 ? [] : [null]),
        [...dimensions.map((_, i) => (i === 0 ? 'total' : '')), ...costCells(report.totals)],
      ],
      widthOf(terminal),
    );
    const style = styleOf(terminal);
    lines[0] = style.bold(lines[0]!);
    lines[lines.length - 1] = style.bold(lines.at(-1)!);
    const { start, end } = report.window;
    stdout.write(`${lines.join('\n')}\n${style.dim(`${start} to ${end}`)}\n`);
    for (const warning of report.warnings) terminal.stderr.write(`metis: ${printable(warning)}\n`);
    if (report.next_cursor !== null) terminal.stderr.write(`metis: more than ${MAX_ROWS} rows, the rest is left out\n`);
    return 0;
  });
}

function keyOf(row: CostRow, dimension: string): string {
  const value = row[KEY_FIELDS[dimension] ?? (dimension as keyof CostRow)];
  return value === undefined || value === null ? '-' : String(value);
}
