// The figures of a row: tokens, cached share, what was stamped and what it would cost by another table.
import type { CostRow, CostTotals, Session } from '#client/client.ts';
import { useApi } from '#dashboard/data/api.ts';
import { usePolled } from '#dashboard/data/queries.ts';
import { centsUsd, exactUsd, formatCount, modelName } from '#dashboard/format/format.ts';
import { sumSides } from '#dashboard/parts/chart/spend-bars.ts';
import { Menu } from '#dashboard/parts/fields.tsx';
import { Count, figureClass, Money, NoValue, Simulated } from '#dashboard/parts/labels.tsx';
import { Figure, Stat, Stats } from '#dashboard/parts/panels.tsx';
import type { CostAnswer, CostQuestion } from './cost-question.ts';
import { getRowKey, getRowName, type Names } from './group-rows.tsx';

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
          At time of call
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
        <Count n={sumPromptTokens(row)} unit="input token" rest=", including cached and cache-write tokens" />
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
  if (usd === null) return <NoValue />;
  return (
    <span class={figureClass(usd === '0')} title={exactUsd(usd)}>
      {centsUsd(usd)}
    </span>
  );
}

function Percent({ share }: { readonly share: number | null }) {
  if (share === null) return <NoValue />;
  return <span class="number">{percent(share)}</span>;
}

/** `37.5 %` */
export function percent(share: number): string {
  return `${(share * 100).toFixed(1)} %`.replace('-', '−');
}

/** Of all input, what was read from a cache; null without input (07 §4.2). */
function cachedShare(row: Tokens | CostTotals): number | null {
  const prompt = sumPromptTokens(row);
  if (prompt === 0) return null;
  return row.cached_input_tokens / prompt;
}

function sumPromptTokens(row: Tokens | CostTotals): number {
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

// The figures at the top: spent, by whom, what the cache took off and what delegating saved.

export function CostStats(props: { readonly answer: CostAnswer; readonly onAsk: (question: CostQuestion) => void }) {
  const { question, groups, spend, savings } = props.answer;
  const { totals } = groups;
  const sides = sumSides(spend);
  const { data } = savings;
  return (
    <Stats note={<SimulatedNote simulated={groups.simulated} />} warnings={listWarnings(props.answer)}>
      <Stat name="Spent" note={<SpentNote totals={totals} />}>
        <span data-total>
          <Figure usd={totals.cost_usd} />
        </span>
      </Stat>
      <Stat name="Planner">
        <Figure usd={sides.planner} />
      </Stat>
      <Stat name="Workers">
        <Figure usd={sides.workers} />
      </Stat>
      <Stat name="Cached input" note={formatCount(totals.cached_input_tokens, 'token')}>
        <Percent share={totals.hit_rate} />
      </Stat>
      <Stat
        name="Saved"
        note={<Baselines value={question.baseline} onChoose={(baseline) => props.onAsk({ ...question, baseline })} />}
      >
        <Figure usd={data.savings_usd} /> <span class="quiet">{percent(data.savings_pct)}</span>
      </Stat>
    </Stats>
  );
}

function SpentNote({ totals }: { readonly totals: CostTotals }) {
  if (totals.stamped_cost_usd === undefined) return <>{formatCount(totals.call_count, 'call')}</>;
  return (
    <>
      <Money usd={totals.stamped_cost_usd} exact /> at time of call
    </>
  );
}

const FORECASTS_EVERY_MS = 60_000;

/** How the newest forecasts compare with what their turns cost; nothing where no turn had one (21 §1). */
export function ForecastCheck() {
  const { client } = useApi();
  const { data } = usePolled((signal) => client.getForecastCheck({ signal }), 'forecasts', FORECASTS_EVERY_MS);
  if (data === null || data.within_p50 === null || data.within_p90 === null) return null;
  return (
    <section class="panel" aria-label="Forecasts">
      <p class="panel-foot">
        Forecasts: of the last {formatCount(data.n, 'turn')} with a forecast, {percent(data.within_p50)} cost at most
        the p50 (half were expected to) and {percent(data.within_p90)} at most the p90.
      </p>
    </section>
  );
}

/** Calls that a script answered: alone they are the figures, beside real calls they are in none of them. */
export function SimulatedNote({ simulated }: Pick<CostAnswer['groups'], 'simulated'>) {
  if (simulated.call_count === 0) return null;
  return (
    <p class="stat-remark">
      <Simulated /> {simulated.included && 'A script answered, at example prices. Nothing was spent.'}
      {!simulated.included && (
        <>
          {formatCount(simulated.call_count, 'call')} of a script, <Money usd={simulated.cost_usd} /> at example prices,
          are not in these figures.
        </>
      )}
    </p>
  );
}

/** Calls that the figures count otherwise than by their price. */
function listWarnings({ groups: { totals }, savings: { data } }: CostAnswer): readonly string[] {
  const missing = totals.missing_call_count ?? 0;
  const warnings: string[] = [];
  for (const [count, why] of [
    [totals.fees_unpriced_call_count, 'used a provider’s tool without a fee in the price table'],
    [totals.surcharge_unknown_call_count, 'ran under terms without a multiplier in the price table'],
    [totals.rounds_unknown_call_count, 'were several agents whose counts are one sum, priced as one round'],
  ] as const)
    if (count > 0) warnings.push(`${formatCount(count, 'call')} ${why}: their cost is not complete.`);
  const flagged =
    totals.fees_unpriced_call_count + totals.surcharge_unknown_call_count + totals.rounds_unknown_call_count;
  if (totals.unpriced_call_count > flagged) {
    const calls = formatCount(totals.unpriced_call_count - flagged, 'call');
    warnings.push(
      `${calls} without a price, counted as $0.00. A price table that has the model shows their cost under “Prices”.`,
    );
  }
  if (missing > 0)
    warnings.push(
      `${formatCount(missing, 'call')} of models that this price table lacks, at the price at time of call.`,
    );
  if (data.rows_missing_from_price_table > 0)
    warnings.push(
      `The saving leaves out ${formatCount(data.rows_missing_from_price_table, 'call')} without a current price.`,
    );
  return warnings;
}

/** What the tokens are compared with. */
function Baselines({ value, onChoose }: { readonly value: string; readonly onChoose: (model: string) => void }) {
  const { client } = useApi();
  const { data } = usePolled((signal) => client.getPricing({}, { signal }), 'baselines', 60_000);
  const models = Object.keys(data?.table.models ?? {}).sort();
  return (
    <Menu
      label="vs"
      choices={[
        { value: 'planner', label: 'planner’s model' },
        ...models.map((model) => ({ value: model, label: modelName(model), hint: model.split(':')[0] })),
      ]}
      value={value}
      onChoose={onChoose}
    />
  );
}

// What the table shows as CSV (RFC 4180), made in the page: every amount with every digit.

const MEASURES = [
  'call_count',
  'input_tokens',
  'cached_input_tokens',
  'cache_creation_input_tokens',
  'cache_creation_1h_input_tokens',
  'output_tokens',
  'reasoning_tokens',
  'unpriced_call_count',
  'fees_unpriced_call_count',
  'surcharge_unknown_call_count',
  'rounds_unknown_call_count',
  'stamped_cost_usd',
  'cost_usd',
  'planner_cost_usd',
  'worker_cost_usd',
] as const satisfies readonly (keyof CostRow)[];

export function formatCsv(answer: CostAnswer, names: Names): string {
  const { question, groups } = answer;
  const trees = question.group === 'root_session';
  const first = groups.data[0];
  const measures = MEASURES.filter((name) => first?.[name] !== undefined);
  const lines = groups.data.map((row) => {
    const key = getRowKey(question, row);
    return [
      quoteCell(key ?? ''),
      quoteCell(getRowName(question, key, names)),
      ...(trees ? listOrigin(names.sessions.get(key ?? '')) : []),
      ...measures.map((name) => String(row[name])),
    ];
  });
  return [[question.group, 'name', ...(trees ? ['created_at', 'workspace'] : []), ...measures], ...lines]
    .map((cells) => `${cells.join(',')}\r\n`)
    .join('');
}

function listOrigin(session: Session | null | undefined): readonly string[] {
  return [session?.created_at ?? '', quoteCell(session?.workspace_path ?? '')];
}

export function csvName({ question, groups }: CostAnswer): string {
  const day = (time: string) => time.slice(0, 10);
  return `metis-cost-by-${question.group}-${day(groups.window.start)}-${day(groups.window.end)}.csv`;
}

/** Lets the browser keep `content` as a file; nothing is sent anywhere. */
export function offerFile(name: string, content: string): void {
  const url = URL.createObjectURL(new Blob([content], { type: 'text/csv' }));
  const link = document.createElement('a');
  link.href = url;
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(url), 0);
}

/** Titles are strangers' text: a spreadsheet must not take them for formulas. */
function quoteCell(cell: string): string {
  const harmless = cell.replace(/^(?=[=+\-@\t\r])/, "'");
  if (/[",\r\n]/.test(harmless)) return `"${harmless.replaceAll('"', '""')}"`;
  return harmless;
}
