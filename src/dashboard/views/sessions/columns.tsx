// What a session's row tells.
import type { Session } from '#client/client.ts';
import { titleOf } from '#dashboard/data/titles.ts';
import { baseName, modelName } from '#dashboard/format/number.ts';
import { BudgetBar, Money, MoneySum } from '#dashboard/parts/amount.tsx';
import { Badge, State } from '#dashboard/parts/badge.tsx';
import { DoorBadge } from '#dashboard/parts/door.tsx';
import type { Column } from '#dashboard/parts/table.tsx';
import { Time } from '#dashboard/parts/time.tsx';
import { placeOf } from '#dashboard/shell/place.ts';

export const SESSION_COLUMNS: readonly Column<Session>[] = [
  {
    id: 'title',
    title: 'Session',
    cell: (session) => (
      <>
        <a class="row-link" href={placeOf('sessions', session.id)} title={titleOf(session)}>
          {titleOf(session)}
        </a>
        <span class="sub" title={session.workspace_path}>
          {session.is_worker && <Badge tone="worker">{session.worker_name ?? 'worker'}</Badge>}
          <DoorBadge session={session} />
          {baseName(session.workspace_path)}
        </span>
      </>
    ),
  },
  { id: 'state', title: 'State', cell: (session) => <State state={stateOf(session)} /> },
  {
    id: 'model',
    title: 'Model',
    cell: (session) => {
      const model = session.active_model ?? session.last_model;
      return model === null ? <span class="quiet">–</span> : <span title={model}>{modelName(model)}</span>;
    },
  },
  {
    id: 'workers',
    title: 'Workers',
    numeric: true,
    cell: ({ worker_count, active_worker_count }) => (
      <span
        class={worker_count === 0 ? 'number quiet' : 'number'}
        title={`${active_worker_count} of ${worker_count} running`}
      >
        {active_worker_count > 0 ? `${active_worker_count} / ${worker_count}` : worker_count}
      </span>
    ),
  },
  { id: 'own', title: 'Own', numeric: true, cell: (session) => <Money usd={session.cost_so_far_usd} /> },
  {
    id: 'worker-cost',
    title: 'By workers',
    numeric: true,
    cell: (session) => <Money usd={session.workers_cost_usd} />,
  },
  {
    id: 'total',
    title: 'Total',
    numeric: true,
    cell: (session) => <MoneySum usd={[session.cost_so_far_usd, session.workers_cost_usd]} />,
  },
  {
    id: 'budget',
    title: 'Budget',
    cell: ({ budget }) =>
      budget?.max_cost_usd == null ? (
        <span class="quiet">–</span>
      ) : (
        <BudgetBar spent={budget.spent_usd} limit={budget.max_cost_usd} />
      ),
  },
  { id: 'activity', title: 'Last activity', numeric: true, cell: (session) => <Time at={session.updated_at} /> },
];

/** How it ended, where it has. */
function stateOf({ status, disposition }: Session): string {
  return status === 'ended' && disposition !== null && disposition !== 'completed' ? disposition : status;
}
