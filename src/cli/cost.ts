// `metis cost`: what model calls cost, grouped; every figure is the server's (17 §2, 07).
import { type CostRow, createMetisClient } from '#client/client.ts';
import type { ServerAddress } from '#client/request.ts';
import {
  askServer,
  type Column,
  countColumns,
  createTerminalStyle,
  formatCompact,
  formatDollars,
  getTableWidth,
  groupDigits,
  layOutTable,
  parseSinceTime,
  type ServerFlags,
  type Terminal,
  toJsonLine,
  toPrintable,
} from './terminal.ts';

export const COST_COLUMNS: readonly Column[] = [
  { title: 'calls', align: 'right', drop: 3 },
  { title: 'input', align: 'right', drop: 4 },
  { title: 'written', align: 'right', drop: 1 },
  { title: 'cached', align: 'right', drop: 2 },
  { title: 'output', align: 'right', drop: 5 },
  { title: 'cost', align: 'right' },
];
type Figures = Pick<
  CostRow,
  'call_count' | 'input_tokens' | 'cache_creation_input_tokens' | 'cached_input_tokens' | 'output_tokens' | 'cost_usd'
>;

/** The cells under `COST_COLUMNS`: the cost to its last digit, tokens by `count`. */
export function composeCostCells(row: Figures, count: (tokens: number) => string = groupDigits): string[] {
  return [
    count(row.call_count),
    count(row.input_tokens),
    count(row.cache_creation_input_tokens),
    count(row.cached_input_tokens),
    count(row.output_tokens),
    formatDollars(row.cost_usd),
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
/** People copy them. */
const IDS = ['session', 'parent_session', 'root_session'];
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
      from: parseSinceTime(flags.since) ?? flags.since,
      parent_session: flags.session,
      limit: MAX_ROWS,
    });
    if (flags.json) {
      stdout.write(toJsonLine(report));
      return 0;
    }
    const dimensions = flags.groupBy === 'none' ? [''] : flags.groupBy.split(',').map((name) => name.trim());
    const rows = Array.isArray(report.data) ? report.data : [];
    const keys = (row: CostRow) => dimensions.map((name) => readDimension(row, name));
    const columns: Column[] = [
      ...dimensions.map((title) => ({ title, whole: IDS.includes(title), least: 16 })),
      ...COST_COLUMNS,
    ];
    const table = (count: (tokens: number) => string, width: number) =>
      layOutTable(
        columns,
        [
          ...rows.map((row) => [...keys(row), ...composeCostCells(row, count)]),
          ...(rows.length === 0 ? [] : [null]),
          [...dimensions.map((_, i) => (i === 0 ? 'total' : '')), ...composeCostCells(report.totals, count)],
        ],
        width,
      );
    const width = getTableWidth(terminal);
    const whole = table(groupDigits, Number.POSITIVE_INFINITY);
    // Where not all of it fits, tokens are rounded before a column goes.
    const lines = countColumns(whole[1]!) <= width ? whole : table(formatCompact, width);
    const style = createTerminalStyle(terminal);
    lines[0] = style.bold(lines[0]!);
    lines[lines.length - 1] = style.bold(lines.at(-1)!);
    const { start, end } = report.window;
    stdout.write(`${lines.join('\n')}\n${style.dim(toPrintable(`${start} to ${end}`))}\n`);
    for (const warning of report.warnings) terminal.stderr.write(`metis: ${toPrintable(warning)}\n`);
    if (report.next_cursor !== null) terminal.stderr.write(`metis: more than ${MAX_ROWS} rows, the rest is left out\n`);
    return 0;
  });
}

function readDimension(row: CostRow, dimension: string): string {
  const value = row[KEY_FIELDS[dimension] ?? (dimension as keyof CostRow)];
  return value === undefined || value === null ? '-' : String(value);
}
