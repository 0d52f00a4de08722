// `metis routing what-if`: what the same work would have cost under another routing file or on other models (21 §2).
import fs from 'node:fs';
import path from 'node:path';
import { createMetisClient, type WhatIfReport } from '#client/client.ts';
import type { ServerAddress } from '#client/request.ts';
import { toPusd, type Usd } from '#protocol/money.ts';
import { describeSimulated } from './cost.ts';
import { toJsonLine, toPrintable } from './printable-text.ts';
import { parseSinceTime } from './since-time.ts';
import {
  askServer,
  type Column,
  createTerminalStyle,
  explainFileError,
  formatDollars,
  getTableWidth,
  groupDigits,
  layOutTable,
  printMessage,
  type ServerFlags,
  type Terminal,
  wrapWords,
} from './terminal.ts';

export interface WhatIfFlags extends Pick<ServerFlags, 'json'> {
  /** As `parseSinceTime` takes it. */
  readonly since: string;
  /** `from=to` each. */
  readonly model?: readonly string[];
  readonly workspace?: string;
}

const COLUMNS: readonly Column[] = [
  { title: 'model', least: 16 },
  { title: 'instead', least: 16 },
  { title: 'rule', drop: 2 },
  { title: 'decisions', align: 'right', drop: 1 },
  { title: 'spent', align: 'right' },
  { title: 'low', align: 'right' },
  { title: 'high', align: 'right' },
];

/** Exit code: 0, 1 when it would have cost more even at its lowest or the server could not say. @param file null = none */
export async function showWhatIf(
  terminal: Terminal,
  server: ServerAddress,
  file: string | null,
  flags: WhatIfFlags,
): Promise<number> {
  const { stdout, stderr } = terminal;
  let routing: string | null = null;
  try {
    if (file !== null) routing = fs.readFileSync(path.resolve(terminal.cwd, file), 'utf8');
  } catch (error) {
    printMessage(stderr, `${file} cannot be read: ${explainFileError(error)}`);
    return 1;
  }
  const models = readModels(flags.model ?? []);
  if (models === null) {
    printMessage(stderr, '--model takes MODEL=MODEL, each model once, such as opus=haiku');
    return 1;
  }
  return askServer(terminal, server, async () => {
    const report = await createMetisClient(server).askWhatIf({
      from: parseSinceTime(flags.since) ?? flags.since,
      routing,
      ...(Object.keys(models).length > 0 && { models }),
      ...(flags.workspace !== undefined && { workspace_path: path.resolve(terminal.cwd, flags.workspace) }),
    });
    if (flags.json) stdout.write(toJsonLine(report));
    else {
      const width = getTableWidth(terminal);
      const [header, ...lines] = layOutWhatIf(report, width);
      const remarks = [describeDecisions(report), describeSimulated(report.simulated)].filter((line) => line !== null);
      const style = createTerminalStyle(terminal);
      stdout.write(`${[style.bold(header!), ...lines].join('\n')}\n`);
      for (const remark of remarks) stdout.write(`${wrapWords(toPrintable(remark), width - 1).join('\n')}\n`);
      for (const warning of report.warnings) printMessage(stderr, toPrintable(warning));
    }
    const { low } = report.hypothetical_usd;
    return toPusd(low as Usd) > toPusd(report.actual_usd as Usd) ? 1 : 0;
  });
}

/** Null where one is no pair, or two replace one model. */
function readModels(pairs: readonly string[]): Record<string, string> | null {
  const models: Record<string, string> = {};
  for (const pair of pairs) {
    const at = pair.indexOf('=');
    const from = pair.slice(0, at);
    if (at <= 0 || at === pair.length - 1 || Object.hasOwn(models, from)) return null;
    models[from] = pair.slice(at + 1);
  }
  return models;
}

/** The table, its header first: a row for each change, the rest as it was, and the sums. */
export function layOutWhatIf(report: WhatIfReport, width: number): string[] {
  const { decisions, actual_usd, hypothetical_usd } = report;
  const rows: (string[] | null)[] = report.changed.map((row) => [
    row.from_model,
    row.to_model,
    row.rule_name ?? '-',
    groupDigits(row.decisions),
    formatDollars(row.actual_usd),
    formatDollars(row.low_usd),
    formatDollars(row.high_usd),
  ]);
  if (rows.length > 0) rows.push(null);
  const all = groupDigits(decisions.same + decisions.changed + decisions.undecided);
  const sums = [actual_usd, hypothetical_usd.low, hypothetical_usd.high].map(formatDollars);
  rows.push(['total', '', '', all, ...sums]);
  return layOutTable(COLUMNS, rows, width);
}

function describeDecisions({ decisions, basis, window }: WhatIfReport): string {
  const { same, changed, undecided } = decisions;
  const open = undecided === 0 ? '' : `, ${groupDigits(undecided)} undecided, at their price`;
  const days = `${window.start.slice(0, 10)} to ${window.end.slice(0, 10)}`;
  return `${groupDigits(changed)} of ${groupDigits(same + changed + undecided)} decisions change${open}. Basis: ${basis}, ${days}. low: the same cache reads; high: none.`;
}
