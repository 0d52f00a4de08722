// One tree by session and model: the planner first, each worker behind whoever called it, all unfolding into their calls.
import { useState } from 'preact/hooks';
import type { CostRow, MetisClient, Session } from '#client/client.ts';
import { useApi } from '#dashboard/data/api.ts';
import { usePolled } from '#dashboard/data/polled.ts';
import { modelName } from '#dashboard/format/number.ts';
import { Badge } from '#dashboard/parts/badge.tsx';
import { Failure } from '#dashboard/parts/notice.tsx';
import { Unfold } from '#dashboard/parts/unfold.tsx';
import { placeOf } from '#dashboard/shell/place.ts';
import { CallRows } from './call-rows.tsx';
import { filterOf } from './cost-question.ts';
import type { CostAnswer } from './cost-report.ts';
import { Figures, NoFigures } from './figures.tsx';
import { sessionName } from './group-rows.tsx';

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
          <Failure error={error} title="The workers cannot be read" retry={reload} />
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
          session={row.session_id === undefined ? undefined : tree.sessions.get(row.session_id)}
        />
      ))}
    </>
  );
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
  const name = planner ? 'Planner' : session === undefined ? 'Purged worker' : sessionName(session);
  return (
    <>
      <tr class="nested">
        <th scope="row">
          <span class="nested-name" style={depth > 1 ? { paddingLeft: `${(depth - 1) * INDENT}px` } : undefined}>
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
            <a href={placeOf('sessions', id)}>Open this session</a>
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
  const same = { from: groups.window.start, to: groups.window.end, ...filterOf(question), pricing: question.pricing };
  const sessions = new Map<string, Session>();
  const known = new Map<string, Below>();
  const ask = async (parent: string) => {
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
    found = (await Promise.all(level.map(ask))).reduce((sum, calls) => sum + calls, found);
    level = level.flatMap((id) => known.get(id)?.workers ?? []);
  }
  const own = await client.getSession(treeId, { signal }).catch(() => null);
  if (own !== null) sessions.set(own.id, own);
  return { rows: inOrder(known, treeId), sessions };
}

/** The planner's own rows, then each worker with those that it called behind it. */
function inOrder(known: ReadonlyMap<string, Below>, treeId: string): readonly TreeRow[] {
  const rowsOf = (id: string, caller: string, depth: number): TreeRow[] => {
    const rows = known.get(caller)?.rows.filter(({ session_id }) => session_id === id) ?? [];
    const below = known.get(id)?.workers.flatMap((worker) => rowsOf(worker, id, depth + 1)) ?? [];
    return [...rows.map((row) => ({ row, depth })), ...below];
  };
  // The ledger counts a planner as its own caller.
  return rowsOf(treeId, treeId, 0);
}
