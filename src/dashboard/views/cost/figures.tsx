// The figures of a row: tokens, cached share, what was stamped and what it would cost by another table.
import type { CostRow, CostTotals } from '#client/client.ts';
import { Count, Money } from '#dashboard/parts/amount.tsx';

type Tokens = Pick<
  CostRow,
  'call_count' | 'input_tokens' | 'output_tokens' | 'cached_input_tokens' | 'cache_creation_input_tokens'
>;
interface Measures extends Tokens {
  /** Null where it is not known. */
  readonly cost_usd: string | null;
  readonly stamped_cost_usd?: string | undefined;
}

/** Beside the name, in this order. */
export function FigureHeads({ repriced }: { readonly repriced: boolean }) {
  return (
    <>
      <th scope="col" class="numeric" data-column="calls">
        Calls
      </th>
      <th scope="col" class="numeric" data-column="input">
        Input
      </th>
      <th scope="col" class="numeric" data-column="output">
        Output
      </th>
      <th scope="col" class="numeric" data-column="cached">
        Cached
      </th>
      {repriced && (
        <th scope="col" class="numeric">
          Stamped
        </th>
      )}
      <th scope="col" class="numeric">
        {repriced ? 'Repriced' : 'Cost'}
      </th>
    </>
  );
}

export function Figures({ row, repriced }: { readonly row: Measures; readonly repriced: boolean }) {
  return (
    <>
      <td class="numeric" data-column="calls">
        <Count n={row.call_count} unit="call" />
      </td>
      <td class="numeric" data-column="input">
        <Count n={promptOf(row)} unit="input token" rest=", cached and written ones included" />
      </td>
      <td class="numeric" data-column="output">
        <Count n={row.output_tokens} unit="output token" />
      </td>
      <td class="numeric" data-column="cached">
        <Percent share={cachedShare(row)} />
      </td>
      {repriced && (
        <td class="numeric">
          <Cost usd={row.stamped_cost_usd ?? row.cost_usd} />
        </td>
      )}
      <td class="numeric strong">
        <Cost usd={row.cost_usd} />
      </td>
    </>
  );
}

function Cost({ usd }: { readonly usd: string | null }) {
  return usd === null ? <span class="quiet">–</span> : <Money usd={usd} />;
}

export function Percent({ share }: { readonly share: number | null }) {
  return share === null ? <span class="quiet">–</span> : <span class="number">{percent(share)}</span>;
}

/** `37.5 %` */
export function percent(share: number): string {
  return `${(share * 100).toFixed(1)} %`.replace('-', '−');
}

/** Of all input, what was read from a cache; null without input (07 §4.2). */
export function cachedShare(row: Tokens | CostTotals): number | null {
  const prompt = promptOf(row);
  return prompt === 0 ? null : row.cached_input_tokens / prompt;
}

function promptOf(row: Tokens | CostTotals): number {
  return row.input_tokens + row.cached_input_tokens + row.cache_creation_input_tokens;
}

/** The same cells with nothing in them, beside a row that is a sentence. */
export function NoFigures({ repriced }: { readonly repriced: boolean }) {
  return (
    <>
      {['calls', 'input', 'output', 'cached'].map((name) => (
        <td key={name} data-column={name} />
      ))}
      {repriced && <td />}
      <td />
    </>
  );
}
