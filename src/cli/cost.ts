// `metis cost`: what model calls cost, grouped; every figure is the server's (17 §2, 07).
import { createHash } from 'node:crypto';
import { type CostRow, createMetisClient, type MetisClient, type SimulatedPart } from '#client/client.ts';
import type { ServerAddress } from '#client/request.ts';
import { formatShortCount } from '#protocol/text/short-count.ts';
import { COST_GROUPS, resolveGroup } from './cost-groups.ts';
import { toJsonLine, toPrintable } from './printable-text.ts';
import { parseSinceTime } from './since-time.ts';
import {
  askServer,
  type Column,
  countColumns,
  createTerminalStyle,
  formatCost,
  formatDollars,
  getTableWidth,
  groupDigits,
  layOutTable,
  type ServerFlags,
  type Terminal,
  wrapWords,
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
> &
  Partial<Pick<CostRow, 'unpriced_call_count'>>;

/** The cells under `COST_COLUMNS`: the cost to its last digit, tokens by `count`. */
export function composeCostCells(row: Figures, count: (tokens: number) => string = groupDigits): string[] {
  return [
    count(row.call_count),
    count(row.input_tokens),
    count(row.cache_creation_input_tokens),
    count(row.cached_input_tokens),
    count(row.output_tokens),
    formatCost(formatDollars(row.cost_usd), { all: row.call_count, unpriced: row.unpriced_call_count ?? 0 }),
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
  source: 'door',
};
/** People copy them. */
const IDS = ['session', 'parent_session', 'root_session'];
const MAX_ROWS = 10_000;
const EXIT_USAGE = 2;

export interface CostFlags extends Pick<ServerFlags, 'json'> {
  /** One or two dimensions separated by a comma, or `none`. */
  readonly groupBy: string;
  /** As `sinceTime` takes it. */
  readonly since: string;
  /** A planner's session: only it and its workers. */
  readonly session?: string;
}

/** Exit code: 0, 1 when the server could not say, or 2 for a group that does not exist. With `json`, the server's answer on one line. */
export async function showCost(terminal: Terminal, server: ServerAddress, flags: CostFlags): Promise<number> {
  const { stdout, stderr } = terminal;
  const dimensions = flags.groupBy.split(',').map((name) => name.trim());
  if (dimensions.some((name) => resolveGroup(name) === null)) {
    stderr.write(`metis: --group-by must be none, or one or two of ${COST_GROUPS.join(', ')}\n`);
    return EXIT_USAGE;
  }
  return askServer(terminal, server, async () => {
    const client = createMetisClient(server);
    const report = await client.getCost<string>({
      group_by: dimensions.map(resolveGroup).join(','),
      from: parseSinceTime(flags.since) ?? flags.since,
      parent_session: flags.session,
      limit: MAX_ROWS,
    });
    if (flags.json) {
      stdout.write(toJsonLine(report));
      return 0;
    }
    const style = createTerminalStyle(terminal);
    const period = describePeriod(report.window);
    if (report.totals.call_count === 0) stdout.write(`no calls ${period}\n`);
    else {
      if (dimensions.includes('workspace')) await nameWorkspaces(client, report);
      const lines = composeCostTable(report, dimensions, getTableWidth(terminal));
      lines[0] = style.bold(lines[0]!);
      lines[lines.length - 1] = style.bold(lines.at(-1)!);
      stdout.write(`${lines.join('\n')}\n${style.dim(`Calls ${period}.`)}\n`);
    }
    const remark = describeSimulated(report.simulated);
    if (remark !== null) stdout.write(`${wrapWords(remark, getTableWidth(terminal) - 1).join('\n')}\n`);
    for (const line of describeIncomplete(report.totals)) stdout.write(`${line}\n`);
    for (const warning of report.warnings) stderr.write(`metis: ${toPrintable(warning)}\n`);
    if (report.next_cursor !== null) stderr.write(`metis: more than ${MAX_ROWS} rows, the rest is left out\n`);
    return 0;
  });
}

type CostReport = Awaited<ReturnType<MetisClient['getCost']>>;

/** `from 2026-01-30 09:15 to 2026-01-31 09:15 UTC`, to the minute; `--json` has the times in full. */
function describePeriod({ start, end }: CostReport['window']): string {
  const toMinute = (time: string) => toPrintable(time.slice(0, 16).replace('T', ' '));
  if (Date.parse(start) === 0) return `until ${toMinute(end)} UTC`;
  return `from ${toMinute(start)} to ${toMinute(end)} UTC`;
}

/** The rows and the total; where not all of it fits, tokens are rounded before a column goes. */
function composeCostTable(report: CostReport, groups: readonly string[], width: number): string[] {
  const dimensions = groups[0] === 'none' ? [''] : groups;
  const rows = Array.isArray(report.data) ? report.data : [];
  const columns: Column[] = [
    ...dimensions.map((title) => ({ title, whole: IDS.includes(title), least: 16 })),
    ...nameCostColumns(report.simulated),
  ];
  const total = dimensions.map(() => '');
  total[0] = 'total';
  const layOut = (count: (tokens: number) => string, columnsFree: number) => {
    const cells: (string[] | null)[] = rows.map((row) => [
      ...dimensions.map((name) => readDimension(row, name)),
      ...composeCostCells(row, count),
    ]);
    if (rows.length > 0) cells.push(null);
    cells.push([...total, ...composeCostCells(report.totals, count)]);
    return layOutTable(columns, cells, columnsFree);
  };
  const whole = layOut(groupDigits, Number.POSITIVE_INFINITY);
  if (countColumns(whole[1]!) <= width) return whole;
  return layOut(formatShortCount, width);
}

/** `COST_COLUMNS`, the money marked where a script answered. */
export function nameCostColumns({ included }: SimulatedPart): readonly Column[] {
  if (!included) return COST_COLUMNS;
  return [...COST_COLUMNS.slice(0, -1), { title: 'example $', align: 'right' }];
}

/** One line for each reason for which a part of some calls' cost is not known (08 §12). */
export function describeIncomplete(totals: CostReport['totals']): readonly string[] {
  return INCOMPLETE.filter(([field]) => totals[field] > 0).map(
    ([field, reason]) => `Cost not complete: ${groupDigits(totals[field])} of the calls ${reason}.`,
  );
}
const INCOMPLETE = [
  ['fees_unpriced_call_count', 'used a provider tool without a fee in the price table'],
  ['surcharge_unknown_call_count', 'ran under terms without a multiplier in the price table'],
  ['rounds_unknown_call_count', 'are several agents whose counts are one sum'],
] as const satisfies readonly (readonly [keyof CostReport['totals'], string])[];

/** The sentence about the calls that a script answered; null where there are none. */
export function describeSimulated({ call_count, cost_usd, included }: SimulatedPart): string | null {
  if (call_count === 0) return null;
  if (included) return 'Simulated: a script answered, at example prices; nothing was spent.';
  const calls = call_count === 1 ? '1 simulated call' : `${groupDigits(call_count)} simulated calls`;
  return `Not in it: ${calls}, ${formatDollars(cost_usd)} at example prices.`;
}

function readDimension(row: CostRow, dimension: string): string {
  const value = row[KEY_FIELDS[dimension] ?? (dimension as keyof CostRow)];
  if (value === undefined || value === null) return '-';
  return String(value);
}

/** Replaces the hash of a workspace by its path. A workspace without a session among the newest keeps its hash. */
async function nameWorkspaces(client: MetisClient, report: CostReport): Promise<void> {
  const unnamed = new Map<string, CostRow[]>();
  for (const row of Array.isArray(report.data) ? (report.data as CostRow[]) : []) {
    const { workspace_hash } = row;
    if (workspace_hash) unnamed.set(workspace_hash, [...(unnamed.get(workspace_hash) ?? []), row]);
  }
  let cursor: string | null = null;
  for (let page = 0; page < MAX_PAGES && unnamed.size > 0; page++) {
    const { sessions, next_cursor } = await client.listSessions({ limit: PAGE, cursor: cursor ?? undefined });
    for (const { workspace_path } of sessions) {
      const hash = createHash('sha256').update(workspace_path).digest('hex');
      for (const row of unnamed.get(hash) ?? []) row.workspace_hash = workspace_path;
      unnamed.delete(hash);
    }
    if (next_cursor === null) return;
    cursor = next_cursor;
  }
}
const PAGE = 200;
const MAX_PAGES = 10;
