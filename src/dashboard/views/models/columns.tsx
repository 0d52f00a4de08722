// What a model's row tells: its place in the registry, its price, and how it did.
import type { Model, ReliabilityReport, RoutingReport } from '#client/client.ts';
import { count, modelName, plural } from '#dashboard/format/number.ts';
import { duration } from '#dashboard/format/time.ts';
import { exactUsd } from '#dashboard/format/usd.ts';
import { Badge } from '#dashboard/parts/badge.tsx';
import type { Column } from '#dashboard/parts/table.tsx';
import { percent } from '../cost/figures.tsx';

export interface ModelRow {
  readonly model: Model;
  readonly wins: RoutingReport['data']['wins_by_model'];
  readonly calls: ReliabilityReport['data'][number] | null;
}

const NONE = <span class="quiet">–</span>;

/** Per million tokens. */
function price(id: string, title: string, rate: (pricing: NonNullable<Model['pricing']>) => string): Column<ModelRow> {
  return {
    id,
    title,
    numeric: true,
    cell: ({ model: { pricing } }) =>
      pricing === null ? (
        NONE
      ) : (
        <span class="number" title={`per million tokens, ${pricing.pricing_version}`}>
          {exactUsd(rate(pricing))}
        </span>
      ),
  };
}

export const MODEL_COLUMNS: readonly Column<ModelRow>[] = [
  {
    id: 'model',
    title: 'Model',
    cell: ({ model }) => (
      <>
        <span class="model-name" title={model.id}>
          {modelName(model.id)}
        </span>
        <span class="sub">
          {model.adapter}
          {model.aliases.length > 0 && ` · ${model.aliases.join(', ')}`}
        </span>
      </>
    ),
  },
  {
    id: 'tier',
    title: 'Tier',
    cell: ({ model }) => (model.tier === null ? NONE : <Badge>{model.tier}</Badge>),
  },
  {
    id: 'delegates',
    title: 'Delegates',
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
      return sum === 0 ? NONE : <span title={by}>{count(sum)}</span>;
    },
  },
  {
    id: 'calls',
    title: 'Calls',
    numeric: true,
    cell: ({ calls }) => (calls === null ? NONE : count(calls.calls)),
  },
  {
    id: 'failed',
    title: 'Failed',
    numeric: true,
    cell: ({ calls }) => {
      if (calls === null || calls.failure_rate === null) return NONE;
      const why = calls.failures.map(({ error_class, count: n }) => `${error_class.replaceAll('_', ' ')}: ${n}`);
      return (
        <span
          class={calls.failed > 0 ? 'bad-text' : undefined}
          title={[plural(calls.failed, 'failed call'), ...why].join(', ')}
        >
          {percent(calls.failure_rate)}
        </span>
      );
    },
  },
  { id: 'p50', title: 'p50', numeric: true, cell: ({ calls }) => latency(calls?.p50) },
  { id: 'p95', title: 'p95', numeric: true, cell: ({ calls }) => latency(calls?.p95) },
];

function latency(ms: number | null | undefined) {
  return ms === null || ms === undefined ? NONE : <span title={`${count(ms)} ms`}>{duration(ms)}</span>;
}

function Availability({ model }: { readonly model: Model }) {
  if (!model.configured) return <Badge>no key</Badge>;
  if (model.availability === 'healthy') return <Badge tone="ok">healthy</Badge>;
  return <Badge tone="bad">{model.availability.replaceAll('_', ' ')}</Badge>;
}
