// What the demo's session cost, by session and model, as the server's analytics say it.
import { COST_COLUMNS, composeCostCells } from '#cli/cost.ts';
import type { Style } from '#cli/style.ts';
import { type Column, layOutTable } from '#cli/table.ts';
import type { MetisClient } from '#client/client.ts';
import type { CostRow } from '#protocol/analytics.ts';
import { toPusd } from '#protocol/money.ts';

const DEMO_COLUMNS: readonly Column[] = [{ title: 'session' }, { title: 'model' }, ...COST_COLUMNS];
const ALL_TIME = 'all';

/** The table and the sentences under it; every figure is the server's. Ends with a line break. */
export async function writeDemoReport(
  client: MetisClient,
  sessionId: string,
  style: Style,
  columns: number,
): Promise<string> {
  const family = { parent_session: sessionId, from: ALL_TIME };
  const { worker_name: root } = await client.getSession(sessionId);
  const [bySession, parts, savings, { workers }] = await Promise.all([
    client.getCost({ ...family, group_by: 'session,model' }),
    client.getCost({ ...family, group_by: root === null ? 'is_worker' : 'worker_name' }),
    client.getSavings({ ...family, baseline: 'planner' }),
    client.listWorkers(sessionId, { recursive: true }),
  ]);
  const names = [root ?? 'planner', ...workers.map(({ worker_name }, i) => `${worker_name ?? 'worker'} ${i + 1}`)];
  const order: (string | null)[] = [sessionId, ...workers.map((worker) => worker.worker_session_id)];
  const place = (row: CostRow) => order.indexOf(row.session_id ?? '');
  const subtotal = (label: string, is: (row: CostRow) => boolean) => {
    const row = parts.data.find(is);
    return row ? [composeCostRow(label, '', row)] : [];
  };
  const subtotals =
    root === null
      ? [
          ...subtotal('planner', (row) => row.is_worker === 'planner'),
          ...subtotal('workers', (row) => row.is_worker === 'worker'),
        ]
      : parts.data.map((row) => composeCostRow(row.worker_name ?? '', '', row));
  const lines = layOutTable(
    DEMO_COLUMNS,
    [
      ...[...bySession.data]
        .sort((a, b) => place(a) - place(b))
        .map((row) => composeCostRow(names[place(row)] ?? '', row.model ?? '', row)),
      null,
      ...subtotals,
      composeCostRow('total', '', bySession.totals),
    ],
    columns - 1,
  );
  lines[0] = style.bold(lines[0]!);
  lines[lines.length - 1] = style.bold(lines.at(-1)!);
  const { baseline_repriced_usd, savings_usd, savings_pct } = savings.data;
  const saved = toPusd(savings_usd);
  const wholeJob = toPusd(bySession.totals.cost_usd) + saved;
  return [
    ...lines,
    '',
    `The workers' tokens on the planner's model: $${baseline_repriced_usd}`,
    style.green(`Saved by delegating: $${savings_usd}`),
    `That is ${formatPercent(savings_pct)} of the workers' part and ${formatPercent(divide(saved, wholeJob))} of the whole job.`,
    '',
  ].join('\n');
}

/** 0 where the whole is nothing. */
function divide(part: bigint, whole: bigint): number {
  return whole === 0n ? 0 : Number(part) / Number(whole);
}

function formatPercent(ratio: number): string {
  return `${(ratio * 100).toFixed(1)} %`;
}

function composeCostRow(label: string, model: string, row: Parameters<typeof composeCostCells>[0]): string[] {
  return [label, model, ...composeCostCells(row)];
}
