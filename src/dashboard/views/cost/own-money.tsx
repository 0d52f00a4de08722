// Whose money: first the person's own, with the limits of the token, then for an admin that of every owner (23 §3).
import { May, useApi, useOwnToken } from '#dashboard/data/api.ts';
import { usePolled } from '#dashboard/data/queries.ts';
import { BudgetBar, Money } from '#dashboard/parts/labels.tsx';
import { Failure, Figure, Stat, Stats } from '#dashboard/parts/panels.tsx';
import { type Column, Table } from '#dashboard/parts/table.tsx';
import { formatPlaceWithQuery } from '#dashboard/shell/place.ts';
import type { Token } from '#protocol/people/person.ts';

const EVERY_MS = 30_000;

/** Nothing where no token is required. */
export function OwnMoney() {
  const { token, required } = useOwnToken();
  if (!required) return null;
  return (
    <>
      {token !== null && <Own token={token} />}
      <May operation="listTokens">
        <Owners />
      </May>
    </>
  );
}

function Own({ token }: { readonly token: Token }) {
  return (
    <section aria-label="Your money">
      <Stats>
        <Stat name="Yours today" note={<Limit spent={token.spent_today_usd} limit={token.daily_usd} />}>
          <Figure usd={token.spent_today_usd} />
        </Stat>
        <Stat name="Yours this month" note={<Limit spent={token.spent_this_month_usd} limit={token.monthly_usd} />}>
          <Figure usd={token.spent_this_month_usd} />
        </Stat>
        <Stat name="Your open sessions" note={<a href={formatPlaceWithQuery('cost', { owner: 'me' })}>Your cost</a>}>
          <a href={formatPlaceWithQuery('sessions', { owner: 'me' })}>{token.open_sessions}</a>
        </Stat>
      </Stats>
    </section>
  );
}

/** How much of a limit of a token is spent. */
export function Limit({ spent, limit }: { readonly spent: string; readonly limit: string | null }) {
  if (limit === null) return <span class="quiet">no limit</span>;
  return <BudgetBar spent={spent} limit={limit} />;
}

const COLUMNS: readonly Column<Token>[] = [
  {
    id: 'owner',
    title: 'Owner',
    cell: ({ name }) => <a href={formatPlaceWithQuery('cost', { owner: name })}>{name}</a>,
  },
  { id: 'today', title: 'Today', numeric: true, cell: ({ spent_today_usd }) => <Money usd={spent_today_usd} /> },
  {
    id: 'daily',
    title: 'Daily limit',
    cell: ({ spent_today_usd, daily_usd }) => <Limit spent={spent_today_usd} limit={daily_usd} />,
  },
  {
    id: 'month',
    title: 'This month',
    numeric: true,
    cell: ({ spent_this_month_usd }) => <Money usd={spent_this_month_usd} />,
  },
  {
    id: 'monthly',
    title: 'Monthly limit',
    cell: ({ spent_this_month_usd, monthly_usd }) => <Limit spent={spent_this_month_usd} limit={monthly_usd} />,
  },
];

/** Owners who spent something this month; nothing where there is none. */
function Owners() {
  const { client } = useApi();
  const { data, error, reload } = usePolled((signal) => client.listTokens({ signal }), 'owners', EVERY_MS);
  const rows = data?.tokens.filter(({ spent_this_month_usd }) => spent_this_month_usd !== '0') ?? [];
  if (rows.length === 0 && error === null) return null;
  return (
    <section class="panel" aria-label="By owner">
      <header>
        <h2>By owner</h2>
        <span class="panel-more quiet">days and months of UTC</span>
      </header>
      {error !== null && <Failure error={error} title="The owners could not be loaded" retry={reload} />}
      <div data-scrolls>
        <Table label="Money by owner" columns={COLUMNS} rows={rows} rowKey={({ id }) => id} />
      </div>
    </section>
  );
}
