// Which shapes of tasks a workspace had, and how each model did with them (12 §12.7).
import { useState } from 'preact/hooks';
import type { Pattern } from '#client/client.ts';
import { useApi } from '#dashboard/data/api.ts';
import { usePolled } from '#dashboard/data/polled.ts';
import { count, modelName, plural } from '#dashboard/format/number.ts';
import { duration } from '#dashboard/format/time.ts';
import { Money } from '#dashboard/parts/amount.tsx';
import { Badge } from '#dashboard/parts/badge.tsx';
import { Failure } from '#dashboard/parts/notice.tsx';
import { type Column, Table } from '#dashboard/parts/table.tsx';
import { percent } from '../cost/figures.tsx';

const EVERY_MS = 30_000;
const PAGE = 50;
const MOST = 200;
/** By `estimated_input_tokens_bucket`. */
const SIZES = ['below 1k tokens', 'below 10k tokens', 'below 100k tokens', '100k tokens and more'];

interface Row {
  readonly shape: Pattern;
  readonly outcome: Pattern['outcomes'][number];
  /** The shape is told once, beside its first model. */
  readonly first: boolean;
}

const COLUMNS: readonly Column<Row>[] = [
  { id: 'shape', title: 'Task shape', cell: ({ shape, first }) => first && <Shape shape={shape} /> },
  {
    id: 'model',
    title: 'Model',
    cell: ({ outcome: { model, tier } }) => (
      <>
        <span title={model}>{modelName(model)}</span> {tier !== null && <Badge>{tier}</Badge>}
      </>
    ),
  },
  { id: 'turns', title: 'Turns', numeric: true, cell: ({ outcome }) => count(outcome.sample_size) },
  {
    id: 'score',
    title: 'Score',
    numeric: true,
    cell: ({ outcome: { success_score_mean: mean, success_score_count: n } }) =>
      mean === null ? (
        <span class="quiet">–</span>
      ) : (
        <span title={`mean of ${plural(n, 'judged turn')}`}>{percent(mean)}</span>
      ),
  },
  { id: 'cost', title: 'Cost a turn', numeric: true, cell: ({ outcome }) => <Money usd={outcome.avg_cost_usd} /> },
  {
    id: 'latency',
    title: 'Time a turn',
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
    EVERY_MS,
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
      {error !== null && <Failure error={error} title="The task shapes cannot be read" retry={reload} />}
      {shown === null && error === null && <p class="panel-note quiet">Loading…</p>}
      {shown !== null && rows.length === 0 && (
        <p class="panel-note quiet">Nothing was learned here yet: each finished turn adds to it.</p>
      )}
      {rows.length > 0 && (
        <div data-scrolls>
          <Table
            label="Task shapes"
            columns={COLUMNS}
            rows={rows}
            rowKey={({ shape, outcome }) => `${shape.fingerprint_id} ${outcome.model}`}
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

function Shape({ shape }: { readonly shape: Pattern }) {
  const { intent_tags, file_extensions, tool_names, estimated_input_tokens_bucket: bucket, has_images } = shape;
  const tools = tool_names.length > 0 ? [plural(tool_names.length, 'tool')] : [];
  const about = [...file_extensions, ...tools, SIZES[bucket] ?? '', ...(has_images ? ['with images'] : [])];
  return (
    <>
      <span>{intent_tags.length === 0 ? 'any other task' : intent_tags.join(', ')}</span>
      <span class="sub" title={tool_names.length === 0 ? undefined : `tools: ${tool_names.join(', ')}`}>
        {about.join(' · ')}
      </span>
    </>
  );
}
