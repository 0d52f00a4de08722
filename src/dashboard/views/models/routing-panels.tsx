// Which of the seven slots decided, and why candidates were not taken.
import type { RoutingReport } from '#client/client.ts';
import { count, modelName } from '#dashboard/format/number.ts';
import { type Column, Table } from '#dashboard/parts/table.tsx';
import { SLOT_NAMES } from '../session/route-chain.tsx';

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
    cell: ({ what }) => (what === null ? <GaveWay /> : <span title={what}>{modelName(what)}</span>),
  },
  { id: 'policy', title: 'Slot', cell: ({ policy }) => slotOf(policy) },
  { id: 'why', title: 'Why', cell: ({ why }) => words(why) },
  { id: 'count', title: 'Times', numeric: true, cell: (row) => count(row.count) },
];

export function RoutingPanels({ stats }: { readonly stats: Stats }) {
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
          <h2>Decided by slot</h2>
        </header>
        <ol class="slots">
          {stats.wins_by_policy.map((win) => (
            <li key={win.policy}>
              <span>{slotOf(win.policy)}</span>
              <span class="slot-track" aria-hidden="true">
                <span style={{ width: `${(win.count / most) * 100}%` }} />
              </span>
              <span class={win.count === 0 ? 'number quiet' : 'number'}>{count(win.count)}</span>
            </li>
          ))}
        </ol>
      </section>
      <section class="panel">
        <header>
          <h2>Not taken</h2>
          <span class="panel-more quiet">
            {count(stats.hard_failures)} without any model, {count(stats.explicit_rejections)} against a person's choice
          </span>
        </header>
        {refusals.length === 0 ? (
          <p class="panel-note quiet">Every first choice was taken.</p>
        ) : (
          <div data-scrolls>
            <Table
              label="Not taken"
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

function GaveWay() {
  return (
    <span class="quiet" title="The slot gave way to a later one">
      gave way
    </span>
  );
}

function slotOf(policy: string): string {
  return SLOT_NAMES[policy] ?? words(policy);
}

function words(name: string): string {
  return name.replaceAll('_', ' ');
}
