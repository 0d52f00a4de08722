// The other bill: what the same work would have cost on another model, beside what it did cost; always a range (21 §2).
import type { MetisClient, WhatIfReport } from '#client/client.ts';
import { useApi } from '#dashboard/data/api.ts';
import { usePolled } from '#dashboard/data/queries.ts';
import { computeShare, exactUsd, formatCount, modelName } from '#dashboard/format/format.ts';
import { Menu } from '#dashboard/parts/fields.tsx';
import { Money } from '#dashboard/parts/labels.tsx';
import { Failure } from '#dashboard/parts/panels.tsx';
import type { CostAnswer, CostQuestion } from './cost-question.ts';

const EVERY_MS = 60_000;
const MOST = 200;
const NONE = '*';

export function OtherBill(props: { readonly answer: CostAnswer; readonly onAsk: (question: CostQuestion) => void }) {
  const { client } = useApi();
  const { question, groups } = props.answer;
  const { start, end } = groups.window;
  const known = usePolled((signal) => askModels(client, start, signal), `models of ${start}`, EVERY_MS);
  const { replaced, instead } = question;
  const asked = replaced !== null && instead !== null;
  const { data, error, reload } = usePolled(
    async (signal) =>
      asked ? client.askWhatIf({ from: start, to: end, models: { [replaced]: instead } }, { signal }) : null,
    `${start} ${end} ${replaced} ${instead}`,
    EVERY_MS,
  );
  const choose = (name: 'replaced' | 'instead') => (value: string) =>
    props.onAsk({ ...question, [name]: value === NONE ? null : value });
  return (
    <section class="panel other-bill" aria-label="The other bill">
      <header>
        <h2>On another model</h2>
        <Menu
          label="In place of"
          choices={listChoices(known.data?.used ?? [], replaced)}
          value={replaced ?? NONE}
          onChoose={choose('replaced')}
        />
        <Menu
          label="use"
          choices={listChoices(known.data?.priced ?? [], instead)}
          value={instead ?? NONE}
          onChoose={choose('instead')}
        />
      </header>
      {!asked && <p class="quiet">Choose two models: what would all work of this time have cost?</p>}
      {asked && error !== null && <Failure error={error} title="The other bill could not be loaded" retry={reload} />}
      {data !== null && <Range report={data} />}
    </section>
  );
}

/** Both bars on one scale. */
function Range({ report }: { readonly report: WhatIfReport }) {
  const { actual_usd: actual, decisions } = report;
  const { low, high } = report.hypothetical_usd;
  const longest = [actual, low, high].reduce((most, usd) => (computeShare(usd, most) >= 1 ? usd : most), '0');
  const width = (usd: string) => `${(computeShare(usd, longest) * 100).toFixed(1)}%`;
  const undecided = decisions.undecided === 0 ? '' : `, ${formatCount(decisions.undecided, 'decision')} undecided`;
  return (
    <>
      <dl class="bill-bars">
        <dt>Spent</dt>
        <dd>
          <span class="bill-track" aria-hidden="true">
            <span class="bill-part spent" style={{ width: width(actual) }} />
          </span>
          <Money usd={actual} />
        </dd>
        <dt>Would have cost</dt>
        <dd>
          <span class="bill-track" aria-hidden="true">
            <span class="bill-part high" style={{ width: width(high) }} />
            <span class="bill-part low" style={{ width: width(low) }} />
          </span>
          <span data-range title={`${exactUsd(low)} to ${exactUsd(high)}`}>
            <Money usd={low} /> to <Money usd={high} />
          </span>
        </dd>
      </dl>
      <p class="quiet">
        {formatCount(decisions.changed, 'decision')} changed{undecided}. From: the same cache reads; to: none. Basis:{' '}
        {report.basis}.
      </p>
      {report.warnings.map((warning) => (
        <p key={warning} class="stat-warning">
          {warning}
        </p>
      ))}
    </>
  );
}

function listChoices(models: readonly string[], value: string | null) {
  const all = value === null || models.includes(value) ? models : [...models, value];
  return [
    { value: NONE, label: 'none' },
    ...all.map((model) => ({ value: model, label: modelName(model), hint: model.split(':')[0] })),
  ];
}

async function askModels(client: MetisClient, from: string, signal: AbortSignal) {
  const [report, prices] = await Promise.all([
    client.getCost({ from, group_by: 'model', limit: MOST }, { signal }),
    client.getPricing({}, { signal }),
  ]);
  return {
    used: report.data.flatMap(({ model }) => model ?? []),
    priced: Object.keys(prices.table.models).sort(),
  };
}
