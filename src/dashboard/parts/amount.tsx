// Money, counts and tokens in tabular figures, with every digit on hover.
import { fromPusd } from '#protocol/money.ts';
import { plural, shortCount } from '../format/number.ts';
import { addUsd, exactUsd, shareOf, shortUsd } from '../format/usd.ts';

/** An amount as the server sent it. `exact` shows every digit in place. */
export function Money({ usd, exact = false }: { readonly usd: string; readonly exact?: boolean }) {
  const full = exactUsd(usd);
  return (
    <span class={usd === '0' ? 'number quiet' : 'number'} title={full}>
      {exact ? full : shortUsd(usd)}
    </span>
  );
}

/** The exact sum of two amounts of the server. */
export function MoneySum({ usd }: { readonly usd: readonly string[] }) {
  return <Money usd={fromPusd(addUsd(...usd))} />;
}

/** `34k`, with the count of what on hover: `unit` is one of it, `rest` follows it. */
export function Count(props: { readonly n: number; readonly unit: string; readonly rest?: string }) {
  const { n, unit, rest = '' } = props;
  return (
    <span class={n === 0 ? 'number quiet' : 'number'} title={`${plural(n, unit)}${rest}`}>
      {shortCount(n)}
    </span>
  );
}

/** How much of a limit is spent. */
export function BudgetBar({ spent, limit }: { readonly spent: string; readonly limit: string }) {
  const share = shareOf(spent, limit);
  const tone = share >= 1 ? 'bad' : share >= 0.8 ? 'warn' : 'ok';
  return (
    <span class="budget" title={`${exactUsd(spent)} of ${exactUsd(limit)} spent`}>
      <span class="budget-track">
        <span class={`budget-fill ${tone}`} style={{ width: `${share * 100}%` }} />
      </span>
      <span class="number quiet">{exactUsd(limit)}</span>
    </span>
  );
}
