// What results cost that a check has passed, by model (20 §10).
import type { VerifiedReport } from '#client/client.ts';
import { formatNumber } from '#dashboard/format/format.ts';
import { ModelName, Money, NoValue } from '#dashboard/parts/labels.tsx';
import { type Column, Table } from '#dashboard/parts/table.tsx';
import { SimulatedNote } from '../cost/cost-figures.tsx';

type Group = VerifiedReport['data'][number];

const count = (id: 'checked' | 'passed_first' | 'passed' | 'failed', title: string): Column<Group> => ({
  id,
  title,
  numeric: true,
  cell: (row) => formatNumber(row[id]),
});
const money = (id: 'cost_usd' | 'cost_per_verified_usd' | 'planner_cost_usd', title: string): Column<Group> => ({
  id,
  title,
  numeric: true,
  cell: ({ [id]: usd }) => (usd === null ? <NoValue /> : <Money usd={usd} />),
});

const COLUMNS: readonly Column<Group>[] = [
  { id: 'model', title: 'Model', cell: ({ key }) => <ModelName id={key} /> },
  count('checked', 'Checked'),
  count('passed_first', 'Passed at first try'),
  count('passed', 'Passed'),
  count('failed', 'Failed'),
  money('cost_usd', 'Cost'),
  money('cost_per_verified_usd', 'Per verified result'),
  money('planner_cost_usd', "On the planner's model"),
];

export function VerifiedPanel({ report }: { readonly report: VerifiedReport }) {
  const checked = report.data.filter((group) => group.checked > 0);
  return (
    <section class="panel" aria-label="Verified results">
      <header>
        <h2>Verified results</h2>
      </header>
      {checked.length === 0 && (
        <p class="panel-note quiet">
          No result was checked in this time. Results appear here once a delegation names a check: a command that the
          server runs before it applies the changes of a worker.
        </p>
      )}
      {checked.length > 0 && (
        <div data-scrolls>
          <Table label="Checked results by model" columns={COLUMNS} rows={checked} rowKey={({ key }) => key} />
        </div>
      )}
      <SimulatedNote simulated={report.simulated} />
    </section>
  );
}
