// Quality beside cost: which shapes of task a cheaper model does as well, and what that saves a day (07 §7.3).
import type { ComponentChildren } from 'preact';
import type { QualityReport } from '#client/client.ts';
import { useApi } from '#dashboard/data/api.ts';
import { usePolled } from '#dashboard/data/polled.ts';
import { count, modelName, plural } from '#dashboard/format/number.ts';
import { exactUsd, shortUsd } from '#dashboard/format/usd.ts';
import { Badge } from '#dashboard/parts/badge.tsx';
import { Failure } from '#dashboard/parts/notice.tsx';
import { type Column, Table } from '#dashboard/parts/table.tsx';

type Quality = QualityReport['data'];
type Comparison = Quality['comparisons'][number];
type Side = Comparison['dearer'];

const EVERY_MS = 30_000;
const VERDICTS = {
  as_good: { words: 'as good', tone: 'ok' },
  undecided: { words: 'too few to say', tone: undefined },
  worse: { words: 'worse', tone: 'bad' },
} as const;

const COLUMNS: readonly Column<Comparison>[] = [
  { id: 'shape', title: 'Shape of task', cell: (row) => shapeOf(row) },
  { id: 'dearer', title: 'Runs on', cell: ({ dearer }) => <SideCell side={dearer} /> },
  { id: 'cheaper', title: 'Cheaper', cell: ({ cheaper }) => <SideCell side={cheaper} /> },
  {
    id: 'verdict',
    title: 'Cheaper is',
    cell: ({ verdict }) => {
      const { words, tone } = VERDICTS[verdict];
      return tone === undefined ? <Badge>{words}</Badge> : <Badge tone={tone}>{words}</Badge>;
    },
  },
  {
    id: 'saving',
    title: 'Less a day',
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
    <section class="panel quality" aria-label="Quality beside cost">
      <header>
        <h2>Quality beside cost</h2>
      </header>
      {error !== null && <Failure error={error} title="What was learned cannot be read" retry={reload} />}
      {data !== null && <Learned quality={data} />}
    </section>
  );
}

function Learned({ quality }: { readonly quality: Quality }) {
  if (quality.turns === 0) return <ComparisonNeeds>Nothing was learned in this workspace yet.</ComparisonNeeds>;
  if (quality.comparisons.length === 0) {
    return (
      <ComparisonNeeds>
        {plural(quality.turns, 'turn')} of {plural(quality.shapes, 'shape')} learned, none of them on two models.
      </ComparisonNeeds>
    );
  }
  const best = quality.comparisons[0];
  return (
    <>
      <p class="panel-note" role="status">
        {best?.verdict === 'as_good' ? sentence(best) : 'No cheaper model is known to do as well yet.'}
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
      {children} A comparison needs one shape of task on two models of different cost, in the last seven days on the
      dearer one, and about twenty scored turns on each.
    </p>
  );
}

/** `debug .ts does as well on fast as on balanced: $0.4000 a day less` */
function sentence(row: Comparison): string {
  const { cheaper, dearer } = row;
  const tiers = cheaper.tier !== null && dearer.tier !== null && cheaper.tier !== dearer.tier;
  const [here, there] = tiers ? [cheaper.tier, dearer.tier] : [modelName(cheaper.model), modelName(dearer.model)];
  return `${shapeOf(row)} does as well on ${here} as on ${there}: ${shortUsd(row.saving_per_day_usd)} a day less.`;
}

function shapeOf({ intent_tags, file_extensions, tool_names, has_images }: Comparison): string {
  const parts = [intent_tags.join(', '), file_extensions.join(' '), tool_names.length > 0 && 'with tools'];
  const named = [...parts, has_images && 'with images'].filter((part) => part !== false && part !== '');
  return named.length === 0 ? 'any other task' : named.join(' · ');
}

function SideCell({ side }: { readonly side: Side }) {
  const score = side.score_mean === null ? 'no score' : `score ${side.score_mean.toFixed(2)}`;
  return (
    <>
      <span title={side.model}>{modelName(side.model)}</span> {side.tier !== null && <Badge>{side.tier}</Badge>}
      <span class="sub" title={`${exactUsd(side.avg_cost_usd)} a turn on average, of ${plural(side.turns, 'turn')}`}>
        {score} of {count(side.scored_turns)} · {shortUsd(side.avg_cost_usd)} a turn
      </span>
    </>
  );
}
