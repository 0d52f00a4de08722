// What `metis demo` prints behind its job: what became of the changes, and what it cost (17 §1).
import { composeCostCells, nameCostColumns } from '#cli/cost.ts';
import { toPrintable } from '#cli/printable-text.ts';
import { layOutTable, type Style } from '#cli/terminal.ts';
import type { MetisClient } from '#client/client.ts';
import type { CostRow } from '#protocol/analytics.ts';
import type { WorkerChanges } from '#protocol/file-change.ts';
import { toPusd } from '#protocol/money.ts';

const ALL_TIME = 'all';
const SIMULATED = 'Simulated: scripts answered in place of models, so nothing was spent.';

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
  const composeSubtotal = (label: string, is: (row: CostRow) => boolean) => {
    const row = parts.data.find(is);
    if (row) return [composeCostRow(label, '', row)];
    return [];
  };
  const listSubtotals = () => {
    if (root !== null) return parts.data.map((row) => composeCostRow(row.worker_name ?? '', '', row));
    return [
      ...composeSubtotal('planner', (row) => row.is_worker === 'planner'),
      ...composeSubtotal('workers', (row) => row.is_worker === 'worker'),
    ];
  };
  const { simulated } = bySession;
  const lines = layOutTable(
    [{ title: 'session' }, { title: 'model' }, ...nameCostColumns(simulated)],
    [
      ...[...bySession.data]
        .sort((a, b) => place(a) - place(b))
        .map((row) => composeCostRow(names[place(row)] ?? '', row.model ?? '', row)),
      null,
      ...listSubtotals(),
      composeCostRow('total', '', bySession.totals),
    ],
    columns - 1,
  );
  lines[0] = style.bold(lines[0]!);
  lines[lines.length - 1] = style.bold(lines.at(-1)!);
  const { baseline_repriced_usd, savings_usd, savings_pct } = savings.data;
  const saved = toPusd(savings_usd);
  const wholeJob = toPusd(bySession.totals.cost_usd) + saved;
  const prices = simulated.included ? ', at example prices' : '';
  return [
    ...lines,
    '',
    `The workers' tokens on the planner's model: $${baseline_repriced_usd}`,
    style.green(`Saved by delegating${prices}: $${savings_usd}`),
    `That is ${formatPercent(savings_pct)} of the workers' part and ${formatPercent(computeShare(saved, wholeJob))} of the whole job.`,
    ...(simulated.included ? [style.dim(SIMULATED)] : []),
    '',
  ].join('\n');
}

/** 0 where the whole is nothing. */
function computeShare(part: bigint, whole: bigint): number {
  if (whole === 0n) return 0;
  return Number(part) / Number(whole);
}

function formatPercent(ratio: number): string {
  return `${(ratio * 100).toFixed(1)} %`;
}

function composeCostRow(label: string, model: string, row: Parameters<typeof composeCostCells>[0]): string[] {
  return [label, model, ...composeCostCells(row)];
}

/** What became of the changes of each worker, a line each. */
export async function describeWorktrees(client: MetisClient, session: string): Promise<string> {
  const { workers } = await client.listWorkers(session);
  const names = new Map(workers.map(({ worker_session_id: id }, at) => [id, `worker ${at + 1}`]));
  const lines = await Promise.all(
    workers.map(async ({ worker_session_id: id, isolation, applied, conflicts, apply_error }) => {
      const earlier = id === null ? null : (await client.getSession(id)).continues_session_id;
      const name = `${names.get(id)}${earlier === null ? '' : `, continues ${names.get(earlier)}`}`;
      return `${name}: ${isolation}, ${describeOutcome({ applied, conflicts, apply_error })}`;
    }),
  );
  return `${lines.map(toPrintable).join('\n')}\n`;
}

function describeOutcome({
  applied,
  conflicts,
  apply_error,
}: Pick<WorkerChanges, 'applied' | 'conflicts' | 'apply_error'>): string {
  if (applied === null) return 'changed the workspace directly';
  if (applied) return 'applied';
  if (conflicts.length > 0) return `not applied, conflict in ${conflicts.join(', ')}`;
  return apply_error === null ? 'not applied' : `not applied: ${apply_error}`;
}
