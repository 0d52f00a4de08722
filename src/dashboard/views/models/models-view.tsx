// The registry: what each model is for, costs and does, and how often routing chose it (17 §3, 07 §7).
import type { MetisClient, Model } from '#client/client.ts';
import { useApi } from '#dashboard/data/api.ts';
import { usePolled } from '#dashboard/data/polled.ts';
import { Menu } from '#dashboard/parts/menu.tsx';
import { Empty, Failure, Skeleton } from '#dashboard/parts/notice.tsx';
import { Table } from '#dashboard/parts/table.tsx';
import { type Place, placeWith } from '#dashboard/shell/place.ts';
import { goTo } from '#dashboard/shell/router.ts';
import { systemClock } from '#protocol/clock.ts';
import { MODEL_COLUMNS, type ModelRow } from './columns.tsx';
import { LearnedPanels } from './learned-panels.tsx';
import { RoutingPanels } from './routing-panels.tsx';

const EVERY_MS = 10_000;
const DAY_MS = 86_400_000;
/** These reports look back 31 days at most, or over all there is (07 §7). */
const RANGES = [
  { value: '1', label: '24 hours' },
  { value: '7', label: '7 days' },
  { value: '30', label: '30 days' },
  { value: 'all', label: 'All time' },
];

export function ModelsView({ place }: { readonly place: Place }) {
  const { client } = useApi();
  const wanted = place.query.get('days');
  const days = RANGES.some(({ value }) => value === wanted) && wanted !== null ? wanted : '7';
  const { data, error, reload } = usePolled((signal) => askModels(client, days, signal), days, EVERY_MS);
  return (
    <div class="view models-view">
      <header class="view-head">
        <h1>Models</h1>
        <span class="quiet number" role="status">
          {data &&
            `${data.rows.filter(({ model }) => model.configured).length} of ${data.rows.length} configured · prices per million tokens`}
        </span>
        <div class="tools">
          <Menu
            label="Range"
            choices={RANGES}
            value={days}
            onChoose={(value) => goTo(placeWith('models', { days: value === '7' ? null : value }))}
          />
        </div>
      </header>
      <div class="view-body">
        {error !== null && <Failure error={error} title="The models cannot be read" retry={reload} />}
        {data === null && error === null && <Skeleton rows={12} />}
        {data?.rows.length === 0 && (
          <Empty icon="models" title="The registry is empty">
            <p>
              Models are entered in the file that <code>registry.path</code> names.
            </p>
          </Empty>
        )}
        {data !== null && data.rows.length > 0 && (
          <>
            <section class="panel models-table" data-scrolls>
              <Table label="Models" columns={MODEL_COLUMNS} rows={data.rows} rowKey={({ model }) => model.id} />
            </section>
            <RoutingPanels stats={data.routing} />
            <LearnedPanels wanted={place.query.get('workspace')} />
          </>
        )}
      </div>
    </div>
  );
}

async function askModels(client: MetisClient, days: string, signal: AbortSignal) {
  const from = days === 'all' ? 'all' : new Date(systemClock.now() - Number(days) * DAY_MS).toISOString();
  const [{ models }, routing, reliability] = await Promise.all([
    client.listModels({ signal }),
    client.getRoutingStats({ from }, { signal }),
    client.getReliability({ from }, { signal }),
  ]);
  const rowOf = (model: Model): ModelRow => ({
    model,
    wins: routing.data.wins_by_model.filter((win) => win.model === model.id),
    calls: reliability.data.find((row) => row.model === model.id) ?? null,
  });
  // What can be used comes first; within that the order of the registry.
  const rows = models.map(rowOf).toSorted((a, b) => Number(b.model.configured) - Number(a.model.configured));
  return { rows, routing: routing.data };
}
