// `metis cost --verified`: what results cost that a check has passed (20 §10, 07).
import { createMetisClient, type MetisClient } from '#client/client.ts';
import type { VerifiedReportQuery } from '#client/questions.ts';
import type { ServerAddress } from '#client/request.ts';
import { type CostFlags, describeSimulated } from './cost.ts';
import { toJsonLine, toPrintable } from './printable-text.ts';
import { parseSinceTime } from './since-time.ts';
import {
  askServer,
  type Column,
  createTerminalStyle,
  formatDollars,
  getTableWidth,
  groupDigits,
  layOutTable,
  type Terminal,
} from './terminal.ts';

type VerifiedGroup = Awaited<ReturnType<MetisClient['getVerifiedResults']>>['data'][number];

const COLUMNS: readonly Column[] = [
  { title: 'checked', align: 'right', drop: 3 },
  { title: 'passed first', align: 'right', drop: 2 },
  { title: 'passed', align: 'right' },
  { title: 'failed', align: 'right' },
  { title: 'cost', align: 'right', drop: 4 },
  { title: 'per verified', align: 'right' },
  { title: 'by the planner', align: 'right', drop: 1 },
];

/** Exit code: 0, or 1 when the server could not say. With `json`, the server's answer on one line. */
export async function showVerifiedCost(terminal: Terminal, server: ServerAddress, flags: CostFlags): Promise<number> {
  const { stdout, stderr } = terminal;
  return askServer(terminal, server, async () => {
    const report = await createMetisClient(server).getVerifiedResults({
      // The server refuses another one, and names those there are.
      group_by: flags.groupBy as NonNullable<VerifiedReportQuery['group_by']>,
      from: parseSinceTime(flags.since) ?? flags.since,
    });
    if (flags.json) {
      stdout.write(toJsonLine(report));
      return 0;
    }
    if (report.data.length === 0) stdout.write('no delegation with a check in this time\n');
    else {
      const [header, ...lines] = layOutVerifiedCost(report.data, flags.groupBy, getTableWidth(terminal));
      stdout.write(`${[createTerminalStyle(terminal).bold(header!), ...lines].join('\n')}\n`);
    }
    const simulated = describeSimulated(report.simulated);
    if (simulated !== null) stdout.write(`${simulated}\n`);
    for (const warning of report.warnings) stderr.write(`metis: ${toPrintable(warning)}\n`);
    return 0;
  });
}

/** The table of `metis cost --verified`, its header first; no line is wider than `width`. */
export function layOutVerifiedCost(data: readonly VerifiedGroup[], group: string, width: number): string[] {
  return layOutTable([{ title: group, least: 12 }, ...COLUMNS], data.map(composeCells), width);
}

function composeCells(group: VerifiedGroup): string[] {
  const counts = [group.checked, group.passed_first, group.passed, group.failed].map(groupDigits);
  const costs = [group.cost_usd, group.cost_per_verified_usd, group.planner_cost_usd];
  return [group.key || '-', ...counts, ...costs.map((cost) => (cost === null ? '-' : formatDollars(cost)))];
}
