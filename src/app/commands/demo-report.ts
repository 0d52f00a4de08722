// What the demo's session cost, by session and model, as the server's analytics say it.
import { COST_COLUMNS, costCells } from '../../cli/cost.ts';
import type { Style } from '../../cli/style.ts';
import { type Column, tableLines } from '../../cli/table.ts';
import type { MetisClient } from '../../client/client.ts';
import type { CostRow } from '../../domain/analytics.ts';

const COLUMNS: readonly Column[] = [{ title: 'session' }, { title: 'model' }, ...COST_COLUMNS];
const ALL_TIME = 'all';

/** The table and the two sentences under it; every figure is the server's. Ends with a line break. */
export async function demoReport(
  client: MetisClient,
  sessionId: string,
  style: Style,
  columns: number,
): Promise<string> {
  const family = { parent_session: sessionId, from: ALL_TIME };
  const [bySession, byRole, savings, { workers }] = await Promise.all([
    client.getCost({ ...family, group_by: 'session,model' }),
    client.getCost({ ...family, group_by: 'is_worker' }),
    client.getSavings({ ...family, baseline: 'planner' }),
    client.listWorkers(sessionId),
  ]);
  const order: (string | null)[] = [sessionId, ...workers.map((worker) => worker.worker_session_id)];
  const place = (row: CostRow) => order.indexOf(row.session_id ?? '');
  const subtotal = (role: 'planner' | 'worker', label: string) => {
    const row = byRole.data.find((candidate) => candidate.is_worker === role);
    return row ? [cells(label, '', row)] : [];
  };
  const lines = tableLines(
    COLUMNS,
    [
      ...[...bySession.data]
        .sort((a, b) => place(a) - place(b))
        .map((row) => cells(place(row) === 0 ? 'planner' : `worker ${place(row)}`, row.model ?? '', row)),
      null,
      ...subtotal('planner', 'planner'),
      ...subtotal('worker', 'workers'),
      cells('total', '', bySession.totals),
    ],
    columns - 1,
  );
  lines[0] = style.bold(lines[0]!);
  lines[lines.length - 1] = style.bold(lines.at(-1)!);
  const { baseline_repriced_usd, savings_usd, savings_pct } = savings.data;
  return [
    ...lines,
    '',
    `The workers' tokens on the planner's model: $${baseline_repriced_usd}`,
    style.green(`Saved by delegating: $${savings_usd} (${(savings_pct * 100).toFixed(1)} %)`),
    '',
  ].join('\n');
}

function cells(label: string, model: string, row: Parameters<typeof costCells>[0]): string[] {
  return [label, model, ...costCells(row)];
}
