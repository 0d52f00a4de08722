// Where the money went: over time, by group, down to the call, and what delegating saved (17 §3, 07).
import { useState } from 'preact/hooks';
import { useApi } from '#dashboard/data/api.ts';
import { usePolled } from '#dashboard/data/polled.ts';
import { useSessionsById } from '#dashboard/data/titles.ts';
import { useWorkspaces } from '#dashboard/data/workspaces.ts';
import { count } from '#dashboard/format/number.ts';
import { barsOf } from '#dashboard/parts/chart/spend.ts';
import { SpendChart } from '#dashboard/parts/chart/spend-chart.tsx';
import { Icon } from '#dashboard/parts/icon.tsx';
import { Menu } from '#dashboard/parts/menu.tsx';
import { Empty, Failure, Skeleton } from '#dashboard/parts/notice.tsx';
import type { Place } from '#dashboard/shell/place.ts';
import { goTo } from '#dashboard/shell/router.ts';
import { CostFilters } from './cost-filters.tsx';
import { type CostQuestion, GROUPS, placeOfQuestion, questionOf, RANGES } from './cost-question.ts';
import { askCost, type CostAnswer } from './cost-report.ts';
import { CostStats } from './cost-stats.tsx';
import { CostTable } from './cost-table.tsx';
import { csvName, csvOf, offerFile } from './csv.ts';
import type { Names } from './group-rows.tsx';

const EVERY_MS = 10_000;
const PAGE = 100;
const MOST_ROWS = 10_000;

export function CostView({ place }: { readonly place: Place }) {
  const { client } = useApi();
  const question = questionOf(place);
  const [limit, setLimit] = useState(PAGE);
  const key = `${placeOfQuestion(question)} ${limit}`;
  const { data, error, reload } = usePolled((signal) => askCost(client, question, limit, signal), key, EVERY_MS);
  // The answer to the question before stays until the next one is here.
  const [last, setLast] = useState<CostAnswer | null>(null);
  if (data !== null && data !== last) setLast(data);
  const answer = data ?? last;
  const trees = answer?.question.group === 'root_session' ? answer.groups.data : [];
  const names: Names = {
    sessions: useSessionsById(trees.flatMap((row) => row.root_session_id ?? [])),
    workspaces: useWorkspaces(),
  };
  const ask = (next: CostQuestion) => {
    setLimit(PAGE);
    goTo(placeOfQuestion(next));
  };
  return (
    <div class="view cost-view">
      <header class="view-head">
        <h1>Cost</h1>
        <CostTools question={question} answer={answer} names={names} onAsk={ask} />
      </header>
      <div class="view-body" aria-busy={data === null}>
        {question.range === 'custom' && <CustomRange question={question} onAsk={ask} />}
        <CostFilters question={question} workspaces={names.workspaces} onAsk={ask} />
        {error !== null && <Failure error={error} title="The report cannot be read" retry={reload} />}
        {answer === null ? (
          error === null && question.range !== 'custom' && <Skeleton rows={10} />
        ) : (
          <Answer answer={answer} names={names} onAsk={ask} onMore={() => setLimit(Math.min(MOST_ROWS, limit * 2))} />
        )}
      </div>
    </div>
  );
}

function Answer(props: {
  readonly answer: CostAnswer;
  readonly names: Names;
  readonly onAsk: (question: CostQuestion) => void;
  readonly onMore: () => void;
}) {
  const { answer } = props;
  const { groups, spend, question } = answer;
  if (groups.totals.call_count === 0) return <NoCalls question={question} />;
  return (
    <>
      <CostStats answer={answer} onAsk={props.onAsk} />
      <SpendChart
        title={`Spend by ${answer.bucket}`}
        bars={barsOf(spend, answer.bucket, groups.window)}
        total={groups.totals.cost_usd}
      />
      <section class="panel">
        <CostTable
          key={question.group}
          answer={answer}
          names={props.names}
          title={GROUPS.find(({ value }) => value === question.group)?.label ?? ''}
        />
        {groups.next_cursor !== null && groups.data.length < MOST_ROWS && (
          <p class="panel-foot">
            <button type="button" class="button" onClick={props.onMore}>
              Show more than {count(groups.data.length)}
            </button>
          </p>
        )}
      </section>
      <p class="quiet foot-note">
        {windowText(groups.window)} · prices {groups.repriced_version ?? 'as stamped'} · every digit on hover
      </p>
    </>
  );
}

function CostTools(props: {
  readonly question: CostQuestion;
  readonly answer: CostAnswer | null;
  readonly names: Names;
  readonly onAsk: (question: CostQuestion) => void;
}) {
  const { question, answer, onAsk } = props;
  const { client } = useApi();
  const pricing = usePolled((signal) => client.getPricing({}, { signal }), 'pricing', 60_000);
  const versions = (pricing.data?.versions ?? []).map(({ version, active }) => ({
    value: version,
    label: version,
    hint: active ? 'active' : undefined,
  }));
  const prices = [{ value: 'stamped', label: 'As stamped' }, { value: 'current', label: 'Current' }, ...versions];
  return (
    <div class="tools">
      <Menu
        label="Range"
        choices={RANGES}
        value={question.range}
        onChoose={(range) => onAsk({ ...question, ...customDays(answer), range: range as CostQuestion['range'] })}
      />
      <Menu
        label="Group by"
        choices={GROUPS}
        value={question.group}
        onChoose={(group) => onAsk({ ...question, group: group as CostQuestion['group'] })}
      />
      <Menu
        label="Prices"
        choices={prices}
        value={question.pricing}
        onChoose={(pricing) => onAsk({ ...question, pricing })}
      />
      <button
        type="button"
        class="button"
        disabled={answer === null || answer.groups.data.length === 0}
        onClick={() => answer && offerFile(csvName(answer), csvOf(answer, props.names))}
      >
        <Icon name="download" />
        CSV
      </button>
    </div>
  );
}

function CustomRange(props: { readonly question: CostQuestion; readonly onAsk: (question: CostQuestion) => void }) {
  const { question, onAsk } = props;
  const { from, to } = question;
  const reversed = from !== null && to !== null && from > to;
  return (
    <div class="custom-range">
      <label>
        From
        <input
          type="date"
          value={from ?? ''}
          max={to ?? undefined}
          onChange={(event) => onAsk({ ...question, from: event.currentTarget.value || null })}
        />
      </label>
      <label>
        To, included
        <input
          type="date"
          value={to ?? ''}
          min={from ?? undefined}
          aria-invalid={reversed}
          onChange={(event) => onAsk({ ...question, to: event.currentTarget.value || null })}
        />
      </label>
      <span class={reversed ? 'field-error' : 'quiet'} role="status">
        {reversed ? 'The last day is before the first.' : 'Days are those of UTC.'}
      </span>
    </div>
  );
}

function NoCalls({ question }: { readonly question: CostQuestion }) {
  const filtered = [question.model, question.tier, question.worker, question.workspace].some((one) => one !== null);
  return (
    <Empty icon="cost" title={filtered ? 'No call matches' : 'Nothing was spent in this time'}>
      <p>
        {filtered
          ? 'Clear a filter, or choose a longer range.'
          : 'Choose a longer range, or open a session: every call to a model is counted here when it ends.'}
      </p>
    </Empty>
  );
}

/** A custom range begins as the one that was shown. */
function customDays(answer: CostAnswer | null): Pick<CostQuestion, 'from' | 'to'> {
  if (answer === null) return { from: null, to: null };
  const first =
    answer.spend
      .map((row) => row.bucket ?? '')
      .sort()[0]
      ?.slice(0, 10) ?? null;
  const { start, end } = answer.groups.window;
  return { from: Date.parse(start) === 0 ? first : start.slice(0, 10), to: end.slice(0, 10) };
}

function windowText({ start, end }: { readonly start: string; readonly end: string }): string {
  const text = (time: string) => time.slice(0, 16).replace('T', ' ');
  return `${Date.parse(start) === 0 ? 'All calls' : text(start)} to ${text(end)} UTC`;
}
