// Quality beside cost: which shapes of task a cheaper model does as well, and what that saves a day (07 §7.3).
import type { ComponentChildren } from 'preact';
import { useState } from 'preact/hooks';
import type { Pattern, QualityReport } from '#client/client.ts';
import { useApi } from '#dashboard/data/api.ts';
import { usePolled } from '#dashboard/data/queries.ts';
import { duration, exactUsd, formatCount, formatNumber, modelName, shortUsd } from '#dashboard/format/format.ts';
import { Badge, Money, NoValue } from '#dashboard/parts/labels.tsx';
import { Failure } from '#dashboard/parts/panels.tsx';
import { type Column, Table } from '#dashboard/parts/table.tsx';
import { percent } from '../cost/cost-figures.tsx';

type Quality = QualityReport['data'];
type Comparison = Quality['comparisons'][number];
type Side = Comparison['dearer'];
/** The fields of a shape that both reports have. */
type ShownShape = Pick<
  Pattern,
  'fingerprint_id' | 'intent_tags' | 'file_extensions' | 'tool_names' | 'estimated_input_tokens_bucket' | 'has_images'
>;

const EVERY_MS = 30_000;
const VERDICTS = {
  as_good: { words: 'as good', tone: 'ok' },
  undecided: { words: 'too few turns', tone: 'plain' },
  worse: { words: 'worse', tone: 'plain' },
} as const;

const COLUMNS: readonly Column<Comparison>[] = [
  { id: 'shape', title: 'Task shape', cell: (row) => <ShapeCell shape={row} /> },
  { id: 'dearer', title: 'Current model', cell: ({ dearer: side }) => <SideCell side={side} /> },
  { id: 'cheaper', title: 'Cheaper model', cell: ({ cheaper }) => <SideCell side={cheaper} /> },
  {
    id: 'verdict',
    title: 'Cheaper model is',
    cell: ({ verdict }) => {
      const { words, tone } = VERDICTS[verdict];
      return <Badge tone={tone}>{words}</Badge>;
    },
  },
  {
    id: 'saving',
    title: 'Saving per day',
    numeric: true,
    cell: ({ saving_per_day_usd: usd }) => (
      <span class="number" title={exactUsd(usd)}>
        {shortUsd(usd)}
      </span>
    ),
  },
];

export function QualityPanel({ workspace }: { readonly workspace: string }) {
  const { client } = useApi();
  const { data, error, reload } = usePolled(
    async (signal) => (await client.getQuality({ workspace_path: workspace }, { signal })).data,
    'quality',
    EVERY_MS,
  );
  return (
    <section class="panel quality" aria-label="Quality and cost">
      <header>
        <h2>Quality and cost</h2>
      </header>
      {error !== null && <Failure error={error} title="The comparisons could not be loaded" retry={reload} />}
      {data !== null && <Learned quality={data} />}
    </section>
  );
}

function Learned({ quality }: { readonly quality: Quality }) {
  if (quality.turns === 0) return <ComparisonNeeds>This workspace has no scored turns yet.</ComparisonNeeds>;
  if (quality.comparisons.length === 0) {
    return (
      <ComparisonNeeds>
        {formatCount(quality.turns, 'turn')} of {formatCount(quality.shapes, 'shape')} learned, none of them with two
        models.
      </ComparisonNeeds>
    );
  }
  const best = quality.comparisons[0];
  return (
    <>
      <p class="panel-note" role="status">
        {best?.verdict === 'as_good' ? sentence(best) : 'No cheaper model is known to be as good yet.'}
      </p>
      <div data-scrolls>
        <Table
          label="Comparisons"
          columns={COLUMNS}
          rows={quality.comparisons}
          rowKey={({ fingerprint_id, dearer }) => `${fingerprint_id} ${dearer.model}`}
        />
      </div>
    </>
  );
}

/** What an answer needs. */
export function ComparisonNeeds({ children }: { readonly children: ComponentChildren }) {
  return (
    <p class="panel-note quiet">
      {children} A comparison needs one task shape on two models of different cost, turns of the last seven days on the
      more expensive model, and about twenty scored turns on each.
    </p>
  );
}

/** `debug .ts is as good on fast as on balanced: saves $0.4000 per day.` */
function sentence(row: Comparison): string {
  const { cheaper, dearer } = row;
  const tiers = cheaper.tier !== null && dearer.tier !== null && cheaper.tier !== dearer.tier;
  const [here, there] = tiers ? [cheaper.tier, dearer.tier] : [modelName(cheaper.model), modelName(dearer.model)];
  return `${describeShape(row)} is as good on ${here} as on ${there}: saves ${shortUsd(row.saving_per_day_usd)} per day.`;
}

/** A shape in words, without its details. */
function describeShape({ intent_tags, file_extensions }: ShownShape): string {
  const named = [intent_tags.join(', '), file_extensions.join(' ')].filter((part) => part !== '');
  if (named.length === 0) return 'any other task';
  return named.join(' · ');
}

/** Two shapes of one description differ in what is not shown: the end of the id is different. */
function ShapeCell({ shape }: { readonly shape: ShownShape }) {
  const { tool_names, estimated_input_tokens_bucket: bucket, has_images, fingerprint_id } = shape;
  const details = [SIZES[bucket] ?? '', describeTools(tool_names)];
  if (has_images) details.push('with images');
  return (
    <>
      <span>{describeShape(shape)}</span>
      <span class="sub" title={tool_names.length === 0 ? undefined : `tools: ${tool_names.join(', ')}`}>
        {details.filter((text) => text !== '').join(' · ')}{' '}
        <code title={fingerprint_id}>{fingerprint_id.slice(-6)}</code>
      </span>
    </>
  );
}

const TOOLS_NAMED = 3;

function describeTools(names: readonly string[]): string {
  if (names.length <= TOOLS_NAMED) return names.join(', ');
  return `${names.slice(0, TOOLS_NAMED).join(', ')} and ${names.length - TOOLS_NAMED} more tools`;
}

function SideCell({ side }: { readonly side: Side }) {
  const score = side.score_mean === null ? 'no score' : `score ${side.score_mean.toFixed(2)}`;
  return (
    <>
      <span title={side.model}>{modelName(side.model)}</span> {side.tier !== null && <Badge>{side.tier}</Badge>}
      <span
        class="sub"
        title={`${exactUsd(side.avg_cost_usd)} per turn on average over ${formatCount(side.turns, 'turn')}`}
      >
        {score} over {formatNumber(side.scored_turns)} · {shortUsd(side.avg_cost_usd)} per turn
      </span>
    </>
  );
}

// Which shapes of tasks a workspace had, and how each model did with them (12 §12.7).

const SHAPES_EVERY_MS = 30_000;
const PAGE = 50;
const MOST = 200;
/** By `estimated_input_tokens_bucket`. */
const SIZES = ['below 1k tokens', 'below 10k tokens', 'below 100k tokens', '100k tokens and more'];

interface Row {
  readonly shape: Pattern;
  readonly outcome: Pattern['outcomes'][number];
  /** The shape is shown once, beside its first model. */
  readonly first: boolean;
}

const SHAPE_COLUMNS: readonly Column<Row>[] = [
  { id: 'shape', title: 'Task shape', cell: ({ shape, first }) => first && <ShapeCell shape={shape} /> },
  {
    id: 'model',
    title: 'Model',
    cell: ({ outcome: { model, tier, is_worker } }) => (
      <>
        <span title={model}>{modelName(model)}</span> {tier !== null && <Badge>{tier}</Badge>}{' '}
        {is_worker && <Badge>worker</Badge>}
      </>
    ),
  },
  { id: 'turns', title: 'Turns', numeric: true, cell: ({ outcome }) => formatNumber(outcome.sample_size) },
  {
    id: 'score',
    title: 'Score',
    numeric: true,
    cell: ({ outcome: { success_score_mean: mean, success_score_count: n, verified_score_count: verified } }) => {
      if (mean === null) return <NoValue />;
      const title = `mean of ${formatCount(n, 'scored turn')}, ${verified} checked or rated by a person`;
      return <span title={title}>{percent(mean)}</span>;
    },
  },
  {
    id: 'cost',
    title: 'Cost per turn',
    numeric: true,
    cell: ({ outcome: { avg_cost_usd } }) => {
      if (avg_cost_usd === null) return <NoValue />;
      return <Money usd={avg_cost_usd} />;
    },
  },
  {
    id: 'latency',
    title: 'Time per turn',
    numeric: true,
    cell: ({ outcome }) => duration(outcome.avg_latency_ms),
  },
];

export function TaskShapes({ workspace }: { readonly workspace: string }) {
  const { client } = useApi();
  const [limit, setLimit] = useState(PAGE);
  const { data, error, reload } = usePolled(
    (signal) => client.listPatterns({ workspace_path: workspace, limit }, { signal }),
    `${limit}`,
    SHAPES_EVERY_MS,
  );
  const [last, setLast] = useState<typeof data>(null);
  if (data !== null && data !== last) setLast(data);
  const shown = data ?? last;
  const rows = (shown?.patterns ?? []).flatMap((shape) =>
    shape.outcomes.map((outcome, i) => ({ shape, outcome, first: i === 0 })),
  );
  return (
    <section class="panel">
      <header>
        <h2>Task shapes</h2>
      </header>
      {error !== null && <Failure error={error} title="The task shapes could not be loaded" retry={reload} />}
      {shown === null && error === null && <p class="panel-note quiet">Loading…</p>}
      {shown !== null && rows.length === 0 && (
        <p class="panel-note quiet">
          No task shapes yet. Each completed turn of a model adds one here; turns of scripts add none.
        </p>
      )}
      {rows.length > 0 && (
        <div data-scrolls>
          <Table
            label="Task shapes"
            columns={SHAPE_COLUMNS}
            rows={rows}
            rowKey={({ shape, outcome }) => `${shape.fingerprint_id} ${outcome.model} ${outcome.is_worker}`}
          />
        </div>
      )}
      {shown?.next_cursor != null && limit < MOST && (
        <p class="panel-foot">
          <button type="button" class="button" onClick={() => setLimit(MOST)}>
            Show more
          </button>
        </p>
      )}
    </section>
  );
}
