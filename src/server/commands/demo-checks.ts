// What `metis demo --checked` prints of its checks: each attempt, and what a verified result cost (20 §10).
import { layOutTable, type Style } from '#cli/terminal.ts';
import { layOutVerifiedCost } from '#cli/verified-cost.ts';
import type { MetisClient, StreamEvent } from '#client/client.ts';
import { nameReference } from '#protocol/text/model-reference.ts';

interface CheckedAttempt {
  readonly worker: string;
  readonly attempt: number;
  readonly model: string;
  readonly outcome: string;
  readonly seconds: number;
}

/** The attempts of all workers, in the order in which their checks ended. */
export interface CheckLog {
  readonly attempts: readonly CheckedAttempt[];
  /** Every event of the session and its workers, in order. */
  add(event: StreamEvent): void;
}

export function createCheckLog(): CheckLog {
  const attempts: CheckedAttempt[] = [];
  /** The model of the newest turn of each session. */
  const models = new Map<string, string>();
  return {
    attempts,
    add({ type, session_id, payload }) {
      if (type === 'route.decided') models.set(session_id, nameReference(payload.chosen_model, payload.chosen_effort));
      if (type !== 'delegate.checked') return;
      const { worker_session_id: worker, attempt, wall_time_seconds: seconds } = payload;
      attempts.push({ worker, attempt, model: models.get(worker) ?? '', outcome: describeAttempt(payload), seconds });
    },
  };
}

function describeAttempt({
  check,
  passed,
  exit_code,
}: Extract<StreamEvent, { type: 'delegate.checked' }>['payload']): string {
  if (passed) return `${check} passed`;
  if (exit_code === null) return `${check} was stopped`;
  return `${check} failed, exit code ${exit_code}`;
}

/** A table of the attempts, a line per worker, and the figures of `metis cost --verified`. Ends with a line break. */
export async function writeCheckReport(
  client: MetisClient,
  sessionId: string,
  log: CheckLog,
  { style, columns }: { readonly style: Style; readonly columns: number },
): Promise<string> {
  const [{ workers }, verified] = await Promise.all([
    client.listWorkers(sessionId),
    client.getVerifiedResults({ group_by: 'check', from: 'all' }),
  ]);
  const width = columns - 1;
  const rows = workers.flatMap(({ worker_session_id }, at) =>
    log.attempts
      .filter(({ worker }) => worker === worker_session_id)
      .map(({ attempt, model, outcome, seconds }) => [
        `worker ${at + 1}`,
        String(attempt),
        model,
        outcome,
        `${seconds.toFixed(1)} s`,
      ]),
  );
  const attempts = layOutTable(
    [
      { title: 'worker' },
      { title: 'attempt', align: 'right' },
      { title: 'model' },
      { title: 'check' },
      { title: 'time', align: 'right' },
    ],
    rows,
    width,
  );
  const sentences = workers.flatMap((worker, at) => describeResult(`worker ${at + 1}`, worker));
  const costs = layOutVerifiedCost(verified.data, 'check', width);
  for (const table of [attempts, costs]) table[0] = style.bold(table[0]!);
  const title = 'What a verified result cost, failed attempts included (metis cost --verified):';
  return [...attempts, '', ...sentences, '', title, ...costs, ''].join('\n');
}

type WorkerView = Awaited<ReturnType<MetisClient['listWorkers']>>['workers'][number];

function describeResult(name: string, { verified, applied, protected_changes }: WorkerView): string[] {
  const lines = [`${name}: ${verified ? 'verified' : 'not verified'}, ${applied ? 'applied' : 'not applied'}`];
  if (protected_changes.length > 0) lines.push(`  its changes to ${protected_changes.join(', ')} did not count`);
  return lines;
}
