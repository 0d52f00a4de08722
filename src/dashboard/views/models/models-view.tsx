// The registry: what each model is for, costs and does, and how often routing chose it (17 §3, 07 §7).
import type { MetisClient, Model, ReliabilityReport, RoutingReport } from '#client/client.ts';
import { useApi } from '#dashboard/data/api.ts';
import { usePolled, useWorkspacePaths } from '#dashboard/data/queries.ts';
import { baseName, duration, exactUsd, formatCount, formatNumber, modelName } from '#dashboard/format/format.ts';
import { Menu } from '#dashboard/parts/fields.tsx';
import { Badge, figureClass, ModelName, NoValue, Simulated } from '#dashboard/parts/labels.tsx';
import { Empty, Failure, Skeleton } from '#dashboard/parts/panels.tsx';
import { type Column, Table } from '#dashboard/parts/table.tsx';
import { formatPlaceWithQuery, goTo, type Place } from '#dashboard/shell/place.ts';
import { systemClock } from '#protocol/clock.ts';
import { toPusd } from '#protocol/money.ts';
import { percent } from '../cost/cost-figures.tsx';
import { SLOT_NAMES } from '../session/route-chain.tsx';
import { ComparisonNeeds, QualityPanel, TaskShapes } from './quality-panel.tsx';
import { VerifiedPanel } from './verified-panel.tsx';

// The columns of a model's row: its place in the registry, its price, and its results.

interface ModelRow {
  readonly model: Model;
  readonly wins: RoutingReport['data']['wins_by_model'];
  readonly calls: ReliabilityReport['data'][number] | null;
}

/** Per million tokens. */
function price(id: string, title: string, rate: (pricing: NonNullable<Model['pricing']>) => string): Column<ModelRow> {
  return {
    id,
    title,
    numeric: true,
    cell: ({ model: { pricing } }) => {
      if (pricing === null) return <NoValue />;
      return (
        <span class="number" title={`per million tokens, ${pricing.pricing_version}`}>
          {exactUsd(rate(pricing))}
        </span>
      );
    },
  };
}

const MODEL_COLUMNS: readonly Column<ModelRow>[] = [
  {
    id: 'model',
    title: 'Model',
    cell: ({ model }) => (
      <>
        <span class="model-name" title={model.id}>
          {modelName(model.id)}
        </span>{' '}
        {model.simulated && <Simulated />}
        <span class="sub">
          {model.adapter}
          {model.aliases.length > 0 && ` · ${model.aliases.join(', ')}`}
        </span>
        {model.superseded_by !== null && <span class="sub">replaced by {modelName(model.superseded_by)}</span>}
      </>
    ),
  },
  {
    id: 'tier',
    title: 'Tier',
    cell: ({ model }) => (model.tier === null ? <NoValue /> : <Badge>{model.tier}</Badge>),
  },
  {
    id: 'delegates',
    title: 'Can delegate',
    cell: ({ model }) => (model.can_delegate ? 'yes' : <span class="quiet">no</span>),
  },
  { id: 'state', title: 'State', cell: ({ model }) => <Availability model={model} /> },
  price('input', 'Input', (pricing) => pricing.input_per_mtok),
  price('cached', 'Cached', (pricing) => pricing.cached_read_per_mtok),
  price('output', 'Output', (pricing) => pricing.output_per_mtok),
  {
    id: 'wins',
    title: 'Chosen',
    numeric: true,
    cell: ({ wins }) => {
      const sum = wins.reduce((total, win) => total + win.count, 0);
      const by = wins.map((win) => `${win.policy.replaceAll('_', ' ')}: ${win.count}`).join(', ');
      if (sum === 0) return <NoValue />;
      return <span title={by}>{formatNumber(sum)}</span>;
    },
  },
  {
    id: 'calls',
    title: 'Calls',
    numeric: true,
    cell: ({ calls }) => (calls === null ? <NoValue /> : formatNumber(calls.calls)),
  },
  {
    id: 'failed',
    title: 'Failed',
    numeric: true,
    cell: ({ calls }) => {
      if (calls === null || calls.failure_rate === null) return <NoValue />;
      const why = calls.failures.map(({ error_class, count: n }) => `${error_class.replaceAll('_', ' ')}: ${n}`);
      return (
        <span
          class={calls.failure_rate >= ALARMING_RATE ? 'bad-text' : undefined}
          title={[formatCount(calls.failed, 'failed call'), ...why].join(', ')}
        >
          {percent(calls.failure_rate)}
        </span>
      );
    },
  },
  { id: 'p50', title: 'p50', numeric: true, cell: ({ calls }) => latency(calls?.p50) },
  { id: 'p95', title: 'p95', numeric: true, cell: ({ calls }) => latency(calls?.p95) },
];

/** Of failed calls: from here on a model needs a look. */
const ALARMING_RATE = 0.1;

function latency(ms: number | null | undefined) {
  if (ms === null || ms === undefined) return <NoValue />;
  return <span title={`${formatNumber(ms)} ms`}>{duration(ms)}</span>;
}

function Availability({ model }: { readonly model: Model }) {
  if (!model.configured) return <Badge>no key</Badge>;
  if (model.availability === 'healthy') return <Badge tone="ok">healthy</Badge>;
  return <Badge tone="bad">{model.availability.replaceAll('_', ' ')}</Badge>;
}

// Which of the seven slots decided, and why candidates were not taken.

type Stats = RoutingReport['data'];
interface Refusal {
  /** Null where a slot gave way before it named one. */
  readonly what: string | null;
  readonly policy: string;
  readonly why: string;
  readonly count: number;
}

const REFUSALS: readonly Column<Refusal>[] = [
  {
    id: 'what',
    title: 'Model',
    cell: ({ what }) => (what === null ? <Deferred /> : <ModelName id={what} />),
  },
  { id: 'policy', title: 'Slot', cell: ({ policy }) => getSlotName(policy) },
  { id: 'why', title: 'Reason', cell: ({ why }) => words(why) },
  { id: 'count', title: 'Count', numeric: true, cell: (row) => formatNumber(row.count) },
];

function RoutingPanels({ stats }: { readonly stats: Stats }) {
  const most = Math.max(1, ...stats.wins_by_policy.map((win) => win.count));
  const refusals: readonly Refusal[] = [
    ...stats.rejections.map(({ model, policy, validation_failure, count: n }) => ({
      what: model,
      policy,
      why: validation_failure,
      count: n,
    })),
    ...stats.deferrals.map(({ policy, reason, count: n }) => ({ what: null, policy, why: reason, count: n })),
  ];
  return (
    <div class="panels two">
      <section class="panel">
        <header>
          <h2>Decisions by slot</h2>
        </header>
        <ol class="slots">
          {stats.wins_by_policy.map((win) => (
            <li key={win.policy}>
              <span>{getSlotName(win.policy)}</span>
              <span class="slot-track" aria-hidden="true">
                <span style={{ width: `${(win.count / most) * 100}%` }} />
              </span>
              <span class={figureClass(win.count === 0)}>{formatNumber(win.count)}</span>
            </li>
          ))}
        </ol>
      </section>
      <section class="panel">
        <header>
          <h2>Rejected candidates</h2>
          <span class="panel-more quiet">
            {formatNumber(stats.hard_failures)} turns without a model, {formatNumber(stats.explicit_rejections)}{' '}
            explicit choices rejected
          </span>
        </header>
        {refusals.length === 0 && (
          <p class="panel-note quiet">
            No candidate was rejected. A model that routing proposes and cannot use appears here with the reason.
          </p>
        )}
        {refusals.length > 0 && (
          <div data-scrolls>
            <Table
              label="Rejected candidates"
              columns={REFUSALS}
              rows={refusals}
              rowKey={(row) => `${row.what} ${row.policy} ${row.why}`}
            />
          </div>
        )}
      </section>
    </div>
  );
}

function Deferred() {
  return (
    <span class="quiet" title="The slot deferred to a later slot">
      deferred
    </span>
  );
}

function getSlotName(policy: string): string {
  return SLOT_NAMES[policy] ?? words(policy);
}

function words(name: string): string {
  return name.replaceAll('_', ' ');
}

// What was learned in one workspace: shapes of tasks, and quality beside cost, under one choice of the workspace.

/** @param props.wanted null = the workspace of the newest session */
function LearnedPanels(props: { readonly wanted: string | null; readonly onChoose: (workspace: string) => void }) {
  const { data: paths, error, reload } = useWorkspacePaths();
  const workspace = props.wanted ?? paths?.[0] ?? null;
  return (
    <section aria-labelledby="learned">
      <div class="filters">
        <h2 id="learned">Learned</h2>
        {workspace !== null && (
          <Menu
            label="Workspace"
            choices={[...new Set([workspace, ...(paths ?? [])])].map((path) => ({
              value: path,
              label: baseName(path),
              hint: path,
            }))}
            value={workspace}
            onChoose={props.onChoose}
          />
        )}
      </div>
      {error !== null && <Failure error={error} title="The workspaces could not be loaded" retry={reload} />}
      {workspace === null && paths !== null && <ComparisonNeeds>No session exists yet.</ComparisonNeeds>}
      {workspace !== null && (
        <>
          <QualityPanel key={`quality ${workspace}`} workspace={workspace} />
          <TaskShapes key={`shapes ${workspace}`} workspace={workspace} />
        </>
      )}
    </section>
  );
}

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
  const days = RANGES.find(({ value }) => value === place.query.get('days'))?.value ?? '7';
  const workspace = place.query.get('workspace');
  const { data, error, reload } = usePolled((signal) => askModels(client, days, signal), days, EVERY_MS);
  const ask = (next: { readonly days: string; readonly workspace: string | null }) =>
    goTo(formatPlaceWithQuery('models', { ...next, days: next.days === '7' ? null : next.days }));
  return (
    <div class="view models-view">
      <header class="view-head">
        <h1>Models</h1>
        <span class="quiet number" role="status">
          {data &&
            `${data.rows.filter(({ model }) => model.configured).length} of ${data.rows.length} configured · prices per million tokens`}
        </span>
        <div class="tools">
          <Menu label="Range" choices={RANGES} value={days} onChoose={(chosen) => ask({ days: chosen, workspace })} />
        </div>
      </header>
      <div class="view-body">
        {error !== null && <Failure error={error} title="The models could not be loaded" retry={reload} />}
        {data === null && error === null && <Skeleton rows={12} />}
        {data?.rows.length === 0 && (
          <Empty icon="models" title="The registry is empty">
            <p>
              Add models to the file at <code>registry.path</code>.
            </p>
          </Empty>
        )}
        {data !== null && data.rows.length > 0 && (
          <>
            <PriceRemarks importedOn={data.importedOn} rows={data.rows} />
            <section class="panel models-table" data-scrolls>
              <Table label="Models" columns={MODEL_COLUMNS} rows={data.rows} rowKey={({ model }) => model.id} />
            </section>
            <RoutingPanels stats={data.routing} />
            <VerifiedPanel report={data.verified} />
            <LearnedPanels wanted={workspace} onChoose={(chosen) => ask({ days, workspace: chosen })} />
          </>
        )}
      </div>
    </div>
  );
}

const STALE_DAYS = 30;

/** Old prices, and models in use whose successor costs less. */
function PriceRemarks({
  importedOn,
  rows,
}: {
  readonly importedOn: string | null;
  readonly rows: readonly ModelRow[];
}) {
  const age = importedOn === null ? 0 : Math.floor((systemClock.now() - Date.parse(importedOn)) / DAY_MS);
  const remarks = rows.flatMap(({ model, calls }) => {
    const newer = rows.find((row) => row.model.id === model.superseded_by)?.model;
    if (calls === null || newer === undefined || !costsLess(newer.pricing, model.pricing)) return [];
    return [`${modelName(model.id)} is in use; its successor ${modelName(newer.id)} costs less.`];
  });
  if (age > STALE_DAYS)
    remarks.unshift(`The prices are ${age} days old (of ${importedOn}); metis prices update takes newer ones.`);
  if (remarks.length === 0) return null;
  return (
    <section class="panel" aria-label="Prices">
      {remarks.map((text) => (
        <p class="panel-note" key={text}>
          {text}
        </p>
      ))}
    </section>
  );
}

function costsLess(a: Model['pricing'], b: Model['pricing']): boolean {
  if (a === null || b === null) return false;
  const fields = ['input_per_mtok', 'output_per_mtok', 'cached_read_per_mtok', 'cache_creation_per_mtok'] as const;
  const changes = fields.map((field) => toPusd(a[field]) - toPusd(b[field]));
  return changes.every((change) => change <= 0n) && changes.some((change) => change < 0n);
}

function formatStart(days: string): string {
  if (days === 'all') return days;
  return new Date(systemClock.now() - Number(days) * DAY_MS).toISOString();
}

async function askModels(client: MetisClient, days: string, signal: AbortSignal) {
  const from = formatStart(days);
  const [{ models }, { imported_on: importedOn }, routing, reliability, verified] = await Promise.all([
    client.listModels({ signal }),
    client.getPricing({}, { signal }),
    client.getRoutingStats({ from }, { signal }),
    client.getReliability({ from }, { signal }),
    client.getVerifiedResults({ from }, { signal }),
  ]);
  const buildRow = (model: Model): ModelRow => ({
    model,
    wins: routing.data.wins_by_model.filter((win) => win.model === model.id),
    calls: reliability.data.find((row) => row.model === model.id) ?? null,
  });
  // What can be used comes first; within that the order of the registry.
  const rows = models.map(buildRow).toSorted((a, b) => Number(b.model.configured) - Number(a.model.configured));
  return { rows, importedOn, routing: routing.data, verified };
}
