// One tree by session and model: the planner first, each worker behind its caller, all unfolding into their calls.
import { useEffect, useState } from 'preact/hooks';
import type { CostRow, EventList, MetisClient, Session } from '#client/client.ts';
import { explain, useApi } from '#dashboard/data/api.ts';
import { usePolled } from '#dashboard/data/queries.ts';
import { duration, modelName } from '#dashboard/format/format.ts';
import { Badge, Time } from '#dashboard/parts/labels.tsx';
import { Failure, Unfold } from '#dashboard/parts/panels.tsx';
import { formatPlace } from '#dashboard/shell/place.ts';
import { Figures, NoFigures } from './cost-figures.tsx';
import { buildFilter, type CostAnswer } from './cost-question.ts';
import { sessionName } from './group-rows.tsx';

// The calls of one session on one model, as the event log holds them: what each was stamped with, and costs by other prices.

const CALLS_PER_PAGE = 200;

type Call = Extract<EventList['events'][number], { type: 'llm.call_completed' }>;
interface Calls {
  readonly calls: readonly Call[];
  readonly next: string | null;
}

function CallRows(props: { readonly answer: CostAnswer; readonly row: CostRow; readonly repriced: boolean }) {
  const { client, reportFailure } = useApi();
  const { session_id, model } = props.row;
  const { window } = props.answer.groups;
  const [read, setRead] = useState<Calls | null>(null);
  const [error, setError] = useState<string | null>(null);

  const loadCalls = async (cursor: string | null, signal?: AbortSignal) => {
    const query = {
      types: ['llm.call_completed'] as const,
      limit: CALLS_PER_PAGE,
      ...(cursor !== null && { cursor }),
    };
    const page = await client.listEvents(session_id ?? '', query, { signal });
    const calls = page.events.filter(
      (event): event is Call =>
        event.type === 'llm.call_completed' &&
        event.payload.model === model &&
        event.timestamp >= window.start &&
        event.timestamp < window.end,
    );
    setRead((before) => ({
      calls: [...(cursor === null ? [] : (before?.calls ?? [])), ...calls],
      next: page.next_cursor,
    }));
  };
  const showFailure = (reason: unknown) => {
    reportFailure(reason);
    setError(explain(reason));
  };
  useEffect(() => {
    const gone = new AbortController();
    loadCalls(null, gone.signal).catch((reason) => {
      if (!gone.signal.aborted) showFailure(reason);
    });
    return () => gone.abort();
    // A session's calls as they stand when it is unfolded.
  }, [session_id, model, window.end]);

  const prices = useRepriced(props, read?.calls ?? []);

  if (error !== null || read === null || (read.calls.length === 0 && read.next === null)) {
    return (
      <tr class="nested calls-foot">
        <td>
          {error !== null && <span class="field-error">{error}</span>}
          {error === null && read === null && <span class="quiet">Loading…</span>}
          {error === null && read !== null && (
            <span class="quiet">The events of these calls are no longer kept; their cost is.</span>
          )}
        </td>
        <td data-column="share" />
        <NoFigures repriced={props.repriced} />
      </tr>
    );
  }
  return (
    <>
      {read.calls.map(({ id, timestamp, payload }) => (
        <tr key={id} class="nested call">
          <th scope="row">
            <Time at={timestamp} />
            <span class="quiet">
              {' '}
              · {payload.stop_reason.replaceAll('_', ' ')}
              {payload.purpose === 'compaction' && ' · compaction'}
              {!payload.priced && ' · no price'}
            </span>
          </th>
          <td data-column="share" class="quiet number">
            {duration(payload.latency_ms)}
          </td>
          <Figures
            row={{
              ...payload,
              call_count: 1,
              stamped_cost_usd: payload.cost_usd,
              cost_usd: props.repriced ? (prices.get(id) ?? null) : payload.cost_usd,
            }}
            repriced={props.repriced}
          />
        </tr>
      ))}
      {read.next !== null && (
        <tr class="nested calls-foot">
          <td>
            <button type="button" class="button" onClick={() => void loadCalls(read.next).catch(showFailure)}>
              More calls
            </button>
          </td>
          <td data-column="share" />
          <NoFigures repriced={props.repriced} />
        </tr>
      )}
    </>
  );
}

/** The cost of each call at the requested prices, by the id of its event. A call without a known cost is left out. */
function useRepriced(props: Parameters<typeof CallRows>[0], calls: readonly Call[]): ReadonlyMap<string, string> {
  const { client, reportFailure } = useApi();
  const [prices, setPrices] = useState<ReadonlyMap<string, string>>(new Map());
  const { pricing } = props.answer.question;
  const shown = calls.map(({ id }) => id).join(' ');
  useEffect(() => {
    if (!props.repriced || calls.length === 0) return;
    const gone = new AbortController();
    // The server reckons: its report over the one millisecond in which the call ended.
    const loadPrice = async ({ id, timestamp, session_id, payload: { model } }: Call) => {
      const window = { from: timestamp, to: new Date(Date.parse(timestamp) + 1).toISOString() };
      const of = { session: session_id, model, pricing, group_by: 'none' } as const;
      const { totals } = await client.getCost({ ...window, ...of }, { signal: gone.signal });
      if (totals.call_count === 1) return [[id, totals.cost_usd] as const];
      return [];
    };
    Promise.all(calls.map(loadPrice)).then(
      (found) => setPrices(new Map(found.flat())),
      (reason) => gone.signal.aborted || reportFailure(reason),
    );
    return () => gone.abort();
  }, [client, reportFailure, shown, pricing, props.repriced]);
  return prices;
}

const MOST = 500;
const PAGE = 200;
const EVERY_MS = 30_000;
/** Of a worker's worker, beside who called it. */
const INDENT = 16;

interface TreeRow {
  readonly row: CostRow;
  /** 0: the planner. */
  readonly depth: number;
}
/** What a session called: its workers, and the rows of their own calls; of a planner its own calls too. */
interface Below {
  readonly rows: readonly CostRow[];
  readonly workers: readonly string[];
}
interface Tree {
  readonly rows: readonly TreeRow[];
  readonly sessions: ReadonlyMap<string, Session>;
}

export function TreeRows(props: {
  readonly answer: CostAnswer;
  readonly treeId: string;
  /** How many there are in the whole tree. */
  readonly calls: number;
  readonly repriced: boolean;
}) {
  const { client } = useApi();
  const { answer, treeId, calls } = props;
  const key = `${treeId} ${answer.groups.window.end} ${answer.question.pricing}`;
  const { data, error, reload } = usePolled(
    (signal) => askTree(client, { answer, treeId, calls }, signal),
    key,
    EVERY_MS,
  );
  const [last, setLast] = useState<Tree | null>(null);
  if (data !== null && data !== last) setLast(data);
  const tree = data ?? last;
  if (error !== null && tree === null)
    return (
      <tr>
        <td>
          <Failure error={error} title="The workers could not be loaded" retry={reload} />
        </td>
      </tr>
    );
  if (tree === null)
    return (
      <tr class="nested">
        <td class="quiet">Loading…</td>
        <td data-column="share" />
        <NoFigures repriced={props.repriced} />
      </tr>
    );
  return (
    <>
      {tree.rows.map(({ row, depth }) => (
        <SessionRows
          key={`${row.session_id} ${row.model}`}
          {...props}
          row={row}
          depth={depth}
          session={tree.sessions.get(row.session_id ?? '')}
        />
      ))}
    </>
  );
}

function nameRow(depth: number, session: Session | undefined): string {
  if (depth === 0) return 'Planner';
  if (session === undefined) return 'Purged worker';
  return sessionName(session);
}

function SessionRows(props: {
  readonly answer: CostAnswer;
  readonly treeId: string;
  readonly repriced: boolean;
  readonly row: CostRow;
  readonly depth: number;
  readonly session: Session | undefined;
}) {
  const { row, depth, session } = props;
  const [open, setOpen] = useState(false);
  const id = row.session_id ?? '';
  const planner = depth === 0;
  const name = nameRow(depth, session);
  return (
    <>
      <tr class="nested">
        <th scope="row">
          <span class="nested-name" style={{ paddingLeft: `${Math.max(0, depth - 1) * INDENT}px` }}>
            <Unfold name={name} open={open} onToggle={() => setOpen(!open)} />
            {!planner && <Badge tone="worker">{session?.worker_name ?? 'worker'}</Badge>}
          </span>
        </th>
        <td data-column="share">
          <span class="quiet nested-model" title={row.model}>
            {modelName(row.model ?? '')}
          </span>
        </td>
        <Figures row={row} repriced={props.repriced} />
      </tr>
      {open && <CallRows {...props} />}
      {open && session !== undefined && (
        <tr class="nested calls-foot">
          <td>
            <a href={formatPlace('sessions', id)}>Open this session</a>
          </td>
          <td data-column="share" />
          <NoFigures repriced={props.repriced} />
        </tr>
      )}
    </>
  );
}

interface TreeQuestion {
  readonly answer: CostAnswer;
  readonly treeId: string;
  readonly calls: number;
}

/**
 * The ledger knows a worker by the session that called it: workers of workers are asked for until every call of the
 * tree is accounted for, which without them is at once.
 */
async function askTree(
  client: MetisClient,
  { answer, treeId, calls }: TreeQuestion,
  signal: AbortSignal,
): Promise<Tree> {
  const { question, groups } = answer;
  const same = {
    from: groups.window.start,
    to: groups.window.end,
    ...buildFilter(question),
    pricing: question.pricing,
  };
  const sessions = new Map<string, Session>();
  const known = new Map<string, Below>();
  const loadBelow = async (parent: string) => {
    const [report, workers] = await Promise.all([
      client.getCost({ ...same, parent_session: parent, group_by: 'session,model', limit: MOST }, { signal }),
      client.listSessions({ parent_session_id: parent, limit: PAGE }, { signal }),
    ]);
    for (const session of workers.sessions) sessions.set(session.id, session);
    // One whose own calls are filtered away may still have called others; of one that was purged only calls are left.
    const ids = [...report.data.flatMap(({ session_id }) => session_id ?? []), ...workers.sessions.map(({ id }) => id)];
    known.set(parent, { rows: report.data, workers: [...new Set(ids)].filter((id) => id !== parent) });
    return report.data.reduce((sum, row) => sum + row.call_count, 0);
  };
  let found = 0;
  for (let level: readonly string[] = [treeId]; level.length > 0 && found < calls; ) {
    found = (await Promise.all(level.map(loadBelow))).reduce((sum, calls) => sum + calls, found);
    level = level.flatMap((id) => known.get(id)?.workers ?? []);
  }
  const own = await client.getSession(treeId, { signal }).catch(() => null);
  if (own !== null) sessions.set(own.id, own);
  return { rows: orderRows(known, treeId), sessions };
}

/** The planner's own rows, then each worker with those that it called behind it. */
function orderRows(known: ReadonlyMap<string, Below>, treeId: string): readonly TreeRow[] {
  const listRows = (id: string, caller: string, depth: number): TreeRow[] => {
    const rows = known.get(caller)?.rows.filter(({ session_id }) => session_id === id) ?? [];
    const below = known.get(id)?.workers.flatMap((worker) => listRows(worker, id, depth + 1)) ?? [];
    return [...rows.map((row) => ({ row, depth })), ...below];
  };
  // The ledger counts a planner as its own caller.
  return listRows(treeId, treeId, 0);
}
