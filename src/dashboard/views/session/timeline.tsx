// A turn's timeline: model calls, tools and delegations as bars over time, planner and workers under each other.
import { useMemo, useState } from 'preact/hooks';
import type { MetisClient, Turn } from '#client/client.ts';
import { useApi } from '#dashboard/data/api.ts';
import { usePolled } from '#dashboard/data/queries.ts';
import { duration } from '#dashboard/format/format.ts';
import { Menu } from '#dashboard/parts/fields.tsx';
import { Empty, Failure, Skeleton } from '#dashboard/parts/panels.tsx';
import { type Bar, buildSpans, type TimelineEvent } from './live/spans.ts';

const PAGE = 1000;
/** A turn of more events than this is shown from its beginning. */
const MOST_EVENTS = 5000;

export function Timeline(props: {
  readonly sessionId: string;
  readonly turns: ReadonlyMap<string, Turn>;
  readonly version: number;
  /** What the session is called beside its bars. */
  readonly label: string;
}) {
  const { client } = useApi();
  const turns = [...props.turns.values()];
  const [chosen, setChosen] = useState('');
  const turn = turns.find(({ id }) => id === chosen) ?? turns[0];
  const running = turn !== undefined && turn.ended_at === null;
  const { data, error, reload } = usePolled(
    (signal) => (turn === undefined ? Promise.resolve([]) : fetchTurnEvents(client, props.sessionId, turn, signal)),
    `${props.sessionId} ${turn?.id ?? ''} ${turn?.ended_at ?? ''} ${running ? props.version : ''}`,
  );
  const bars = useMemo(() => buildSpans(data ?? [], props.label), [data, props.label]);
  if (turn === undefined) {
    return (
      <Empty icon="clock" title="No turns yet">
        <p>The timeline shows each model call, tool call and approval of a turn.</p>
      </Empty>
    );
  }
  const from = Date.parse(turn.started_at);
  const last = Math.max(...bars.map(({ end, start }) => end ?? start), Date.parse(turn.ended_at ?? turn.started_at));
  const length = Math.max(1, last - from);
  return (
    <section class="timeline" aria-label="Timeline" tabIndex={0}>
      <div class="timeline-head">
        <Menu
          label="Turn"
          value={turn.id}
          onChoose={setChosen}
          choices={turns.map(({ id, started_at }, i) => ({
            value: id,
            label: i === 0 ? 'newest' : `${turns.length - i}`,
            hint: new Date(started_at).toLocaleTimeString(),
          }))}
        />
        <span class="quiet number">{duration(length)}</span>
      </div>
      {error !== null && <Failure error={error} retry={reload} />}
      {data === null ? (
        error === null && <Skeleton rows={8} height={28} />
      ) : (
        <ol class="bars">
          {bars.map((bar) => (
            <BarRow key={bar.id} bar={bar} from={from} length={length} until={last} />
          ))}
        </ol>
      )}
    </section>
  );
}

function BarRow(props: { readonly bar: Bar; readonly from: number; readonly length: number; readonly until: number }) {
  const { bar, from, length } = props;
  const end = bar.end ?? props.until;
  const left = Math.max(0, (bar.start - from) / length) * 100;
  const width = Math.max(0.3, ((end - bar.start) / length) * 100);
  return (
    <li class={`bar-row ${bar.kind}${bar.failed ? ' failed' : ''}`}>
      <span class="bar-label" title={bar.label}>
        <span class="quiet">{bar.session}</span> {bar.label}
      </span>
      <span class="bar-track" aria-hidden="true">
        <span class="bar" style={{ left: `${Math.min(left, 99.7)}%`, width: `${Math.min(width, 100 - left)}%` }} />
      </span>
      <span class="bar-length number">{bar.end === null ? 'running' : duration(end - bar.start)}</span>
    </li>
  );
}

async function fetchTurnEvents(
  client: MetisClient,
  sessionId: string,
  turn: Turn,
  signal: AbortSignal,
): Promise<TimelineEvent[]> {
  const found: TimelineEvent[] = [];
  // Ids order by time: the turn's events are those behind its own id, up to its end.
  let cursor: string | null = null;
  const query = { since: turn.id, include_worker_sessions: true, limit: PAGE } as const;
  do {
    const page: Awaited<ReturnType<MetisClient['listEvents']>> = await client.listEvents(
      sessionId,
      { ...query, ...(cursor === null ? {} : { cursor }) },
      { signal },
    );
    for (const event of page.events) {
      found.push(event);
      if (event.turn_id === turn.id && /^turn\.(completed|failed|cancelled)$/.test(event.type)) return found;
    }
    cursor = page.next_cursor;
  } while (cursor !== null && found.length < MOST_EVENTS);
  return found;
}
