// What a worker's row tells.
import type { WorkerInfo } from '#client/client.ts';
import { modelName, plural } from '#dashboard/format/number.ts';
import { Count, Money } from '#dashboard/parts/amount.tsx';
import { Badge } from '#dashboard/parts/badge.tsx';
import type { Column } from '#dashboard/parts/table.tsx';
import { MayTouch, Source } from './may-touch.tsx';
import type { WorkerCosts } from './worker-reports.ts';

/** `costs` is null until they are known. */
export function workerColumns(
  costs: WorkerCosts | null,
  placeOf: (name: string) => string,
): readonly Column<WorkerInfo>[] {
  return [
    {
      id: 'name',
      title: 'Worker',
      cell: (worker) => (
        <>
          <a class="worker-name" href={placeOf(worker.name)}>
            {worker.name}
          </a>{' '}
          <State worker={worker} />
          {worker.description !== null && <p class="worker-description">{worker.description}</p>}
        </>
      ),
    },
    { id: 'source', title: 'Source', cell: (worker) => <Source worker={worker} /> },
    {
      id: 'model',
      title: 'Model',
      cell: ({ model, tier, valid }) =>
        model !== null ? (
          <span title={model}>{modelName(model)}</span>
        ) : (
          <span class={tier === null ? 'quiet' : undefined}>{tier ?? (valid ? 'routing decides' : '–')}</span>
        ),
    },
    { id: 'touch', title: 'May touch', cell: (worker) => <MayTouch worker={worker} /> },
    {
      id: 'calls',
      title: 'Calls',
      numeric: true,
      cell: ({ name }) => costs && <Count n={costs.byName.get(name)?.call_count ?? 0} unit="call" rest=" to models" />,
    },
    {
      id: 'cost',
      title: 'Cost',
      numeric: true,
      cell: ({ name }) => costs && <Money usd={costs.byName.get(name)?.cost_usd ?? '0'} />,
    },
  ];
}

/** Whether it can be called, and changed. */
export function State({ worker }: { readonly worker: WorkerInfo }) {
  return (
    <>
      {!worker.valid && <Badge tone="bad">{plural(worker.errors.length, 'error')}</Badge>}
      {worker.locked && <Badge>locked</Badge>}
    </>
  );
}
