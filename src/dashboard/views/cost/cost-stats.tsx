// The figures at the top: spent, by whom, what the cache took off and what delegating saved.
import { useApi } from '#dashboard/data/api.ts';
import { usePolled } from '#dashboard/data/polled.ts';
import { modelName, plural } from '#dashboard/format/number.ts';
import { Money } from '#dashboard/parts/amount.tsx';
import { sidesOf } from '#dashboard/parts/chart/spend.ts';
import { Menu } from '#dashboard/parts/menu.tsx';
import { ExactFigure, Stat, Stats } from '#dashboard/parts/stat.tsx';
import type { CostQuestion } from './cost-question.ts';
import type { CostAnswer } from './cost-report.ts';
import { percent } from './figures.tsx';

export function CostStats(props: { readonly answer: CostAnswer; readonly onAsk: (question: CostQuestion) => void }) {
  const { question, groups, spend, savings } = props.answer;
  const { totals } = groups;
  const sides = sidesOf(spend);
  const { data } = savings;
  return (
    <Stats warnings={listWarnings(props.answer)}>
      <Stat
        name="Spent"
        note={
          totals.stamped_cost_usd === undefined ? (
            plural(totals.call_count, 'call')
          ) : (
            <>
              stamped <Money usd={totals.stamped_cost_usd} exact />
            </>
          )
        }
      >
        <span data-total>
          <ExactFigure usd={totals.cost_usd} />
        </span>
      </Stat>
      <Stat name="Planner">
        <ExactFigure usd={sides.planner} />
      </Stat>
      <Stat name="Workers">
        <ExactFigure usd={sides.workers} />
      </Stat>
      <Stat name="Cached input" note={plural(totals.cached_input_tokens, 'token')}>
        {totals.hit_rate === null ? '–' : percent(totals.hit_rate)}
      </Stat>
      <Stat
        name="Saved"
        note={<Baselines value={question.baseline} onChoose={(baseline) => props.onAsk({ ...question, baseline })} />}
      >
        <ExactFigure usd={data.savings_usd} /> <span class="quiet">{percent(data.savings_pct)}</span>
      </Stat>
    </Stats>
  );
}

/** Calls that the figures count otherwise than by their price. */
function listWarnings({ groups: { totals }, savings: { data } }: CostAnswer): readonly string[] {
  const missing = totals.missing_call_count ?? 0;
  const warnings: string[] = [];
  if (totals.unpriced_call_count > 0) {
    const calls = plural(totals.unpriced_call_count, 'call');
    warnings.push(
      `${calls} without a price, counted as $0.00. A price table that has the model shows their cost under “Prices”.`,
    );
  }
  if (missing > 0)
    warnings.push(`${plural(missing, 'call')} of models that this price table lacks, at the price at time of call.`);
  if (data.rows_missing_from_price_table > 0)
    warnings.push(
      `The saving leaves out ${plural(data.rows_missing_from_price_table, 'call')} without a current price.`,
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
