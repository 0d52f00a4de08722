// Where the money went: over time, by group, down to the call, and what delegating saved (17 §3, 07).
import { useState } from 'preact/hooks';
import type { CostReport, MetisClient } from '#client/client.ts';
import { useApi, useOwnToken } from '#dashboard/data/api.ts';
import { usePolled, useSessionsById, useWorkspaces } from '#dashboard/data/queries.ts';
import { baseName, formatNumber, modelName } from '#dashboard/format/format.ts';
import { buildBars } from '#dashboard/parts/chart/spend-bars.ts';
import { SpendChart } from '#dashboard/parts/chart/spend-chart.tsx';
import { type Choice, Menu } from '#dashboard/parts/fields.tsx';
import { Icon, SOURCE_NAMES } from '#dashboard/parts/labels.tsx';
import { Empty, Failure, Skeleton } from '#dashboard/parts/panels.tsx';
import { goTo, type Place } from '#dashboard/shell/place.ts';
import { systemClock } from '#protocol/clock.ts';
import { CostStats, csvName, ForecastCheck, formatCsv, offerFile } from './cost-figures.tsx';
import {
  askCost,
  type CostAnswer,
  type CostQuestion,
  FILTERS,
  type Filter,
  formatCostPlace,
  GROUPS,
  NO_FILTER,
  parseCostQuestion,
  RANGES,
  resolveWindow,
} from './cost-question.ts';
import { CostTable } from './cost-table.tsx';
import { type Names, NO_KEY, NO_OWNER } from './group-rows.tsx';
import { OtherBill } from './other-bill.tsx';
import { OwnMoney } from './own-money.tsx';

// Filters over the calls: what there is to choose from is what was spent on in the same time.

const CHOICES_EVERY_MS = 60_000;
const MOST = 200;
const TITLES: Readonly<Record<Filter, string>> = {
  model: 'Model',
  tier: 'Tier',
  worker: 'Worker',
  workspace: 'Workspace',
  door: 'Source',
  caller: 'Caller',
  owner: 'Owner',
};
/** Nothing that is filtered by is called so; the caller '' is the calls without a key. */
const ANY = '*';

function CostFilters(props: {
  readonly question: CostQuestion;
  readonly workspaces: ReadonlyMap<string, string>;
  readonly onAsk: (question: CostQuestion) => void;
}) {
  const { question, onAsk } = props;
  const { client } = useApi();
  const key = `${question.range} ${question.from} ${question.to}`;
  const { data } = usePolled((signal) => askChoices(client, question, signal), key, CHOICES_EVERY_MS);
  const offered: Readonly<Record<Filter, readonly Choice[]>> = {
    model: (data?.models ?? []).map((value) => ({ value, label: modelName(value) })),
    tier: ['fast', 'balanced', 'deep'].map((value) => ({ value, label: value })),
    worker: (data?.workers ?? []).map((value) => ({ value, label: value })),
    workspace: (data?.workspaces ?? []).map((value) => workspaceChoice(value, props.workspaces)),
    door: (data?.doors ?? []).map((value) => ({ value, label: SOURCE_NAMES[value] })),
    caller: (data?.callers ?? []).map((value) => ({ value, label: value || NO_KEY })),
    owner: (data?.owners ?? []).map((value) => ({ value, label: value || NO_OWNER })),
  };
  return (
    <div class="filters">
      {FILTERS.map((filter) => {
        const value = question[filter];
        const known = offered[filter];
        if (value === null && known.length === 0) return null;
        const choices = [{ value: ANY, label: 'Any' }, ...known];
        const isKnown = choices.some((choice) => choice.value === value);
        if (value !== null && !isKnown) choices.push({ value, label: nameUnlisted(filter, value) });
        return (
          <Menu
            key={filter}
            label={TITLES[filter]}
            choices={choices}
            value={value ?? ANY}
            onChoose={(chosen) => onAsk({ ...question, [filter]: chosen === ANY ? null : chosen })}
          />
        );
      })}
      {FILTERS.some((filter) => question[filter] !== null) && (
        <button type="button" class="button ghost" onClick={() => onAsk({ ...question, ...NO_FILTER })}>
          <Icon name="close" />
          Clear
        </button>
      )}
    </div>
  );
}

/** What the address asks for and nothing was spent on. */
function nameUnlisted(filter: Filter, value: string): string {
  if (filter === 'owner') return value === 'me' ? 'Mine' : value || NO_OWNER;
  return value || NO_KEY;
}

async function askChoices(client: MetisClient, question: CostQuestion, signal: AbortSignal) {
  const window = resolveWindow(question, systemClock.now());
  if (window === null) return null;
  const { bucket: _, ...asked } = window;
  const by = (group_by: string) =>
    client.getCost({ ...asked, group_by, limit: MOST } as { group_by: 'model' }, { signal });
  const [models, workers, workspaces, ways, owners] = await Promise.all([
    by('model'),
    by('worker_name'),
    by('workspace'),
    by('door,caller'),
    by('owner'),
  ]);
  const listKeys = (report: CostReport<'model'>, name: 'model' | 'worker_name' | 'workspace_hash') =>
    [...new Set(report.data.map((row) => row[name]))].filter((key) => typeof key === 'string');
  return {
    models: listKeys(models, 'model'),
    workers: listKeys(workers, 'worker_name'),
    workspaces: listKeys(workspaces, 'workspace_hash'),
    // Where all came the one way there is nothing to choose.
    doors: listIfSeveral(ways.data.flatMap(({ door }) => door ?? [])),
    callers: listIfSeveral(ways.data.map(({ caller }) => caller ?? '')),
    owners: listIfSeveral(owners.data.map(({ owner }) => owner?.name ?? '')),
  };
}

function listIfSeveral<T extends string>(values: readonly T[]): readonly T[] {
  const different = [...new Set(values)].sort();
  if (different.length > 1) return different;
  return [];
}

function workspaceChoice(hash: string, paths: ReadonlyMap<string, string>): Choice {
  const path = paths.get(hash);
  if (path === undefined) return { value: hash, label: hash.slice(0, 8) };
  return { value: hash, label: baseName(path), hint: hash.slice(0, 4) };
}

const EVERY_MS = 10_000;
const PAGE = 100;
const MOST_ROWS = 10_000;

export function CostView({ place }: { readonly place: Place }) {
  const { client } = useApi();
  const question = parseCostQuestion(place);
  const [limit, setLimit] = useState(PAGE);
  const key = `${formatCostPlace(question)} ${limit}`;
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
  const changeQuestion = (next: CostQuestion) => {
    setLimit(PAGE);
    goTo(formatCostPlace(next));
  };
  return (
    <div class="view cost-view">
      <header class="view-head">
        <h1>Cost</h1>
        <CostTools question={question} answer={answer} names={names} onAsk={changeQuestion} />
      </header>
      <div class="view-body" aria-busy={data === null}>
        {question.range === 'custom' && <CustomRange question={question} onAsk={changeQuestion} />}
        <OwnMoney />
        <CostFilters question={question} workspaces={names.workspaces} onAsk={changeQuestion} />
        {error !== null && <Failure error={error} title="The report could not be loaded" retry={reload} />}
        {answer === null && error === null && question.range !== 'custom' && <Skeleton rows={10} />}
        {answer !== null && (
          <Answer
            answer={answer}
            names={names}
            onAsk={changeQuestion}
            onMore={() => setLimit(Math.min(MOST_ROWS, limit * 2))}
          />
        )}
        <ForecastCheck />
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
        bars={buildBars(spend, answer.bucket, groups.window)}
        total={groups.totals.cost_usd}
      />
      <OtherBill answer={answer} onAsk={props.onAsk} />
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
              Show more than {formatNumber(groups.data.length)}
            </button>
          </p>
        )}
      </section>
      <p class="quiet foot-note">
        {windowText(groups.window)} · prices {groups.repriced_version ?? 'at time of call'} · hover shows the exact
        amount
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
  const { required } = useOwnToken();
  const pricing = usePolled((signal) => client.getPricing({}, { signal }), 'pricing', 60_000);
  const versions = (pricing.data?.versions ?? []).map(({ version, active }) => ({
    value: version,
    label: version,
    hint: active ? 'active' : undefined,
  }));
  const prices = [{ value: 'stamped', label: 'At time of call' }, { value: 'current', label: 'Current' }, ...versions];
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
        choices={GROUPS.filter(({ value }) => value !== 'owner' || required || question.group === 'owner')}
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
        onClick={() => answer && offerFile(csvName(answer), formatCsv(answer, props.names))}
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
        To (inclusive)
        <input
          type="date"
          value={to ?? ''}
          min={from ?? undefined}
          aria-invalid={reversed}
          onChange={(event) => onAsk({ ...question, to: event.currentTarget.value || null })}
        />
      </label>
      <span role="status">
        {reversed && <span class="field-error">The last day is before the first day.</span>}
        {!reversed && <span class="quiet">Days are in UTC.</span>}
      </span>
    </div>
  );
}

function NoCalls({ question }: { readonly question: CostQuestion }) {
  if (FILTERS.some((filter) => question[filter] !== null))
    return (
      <Empty icon="cost" title="No call matches">
        <p>Clear a filter, or choose a longer range.</p>
      </Empty>
    );
  return (
    <Empty icon="cost" title="No cost in this period">
      <p>Choose a longer range, or open a session. A model call appears here when it ends.</p>
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
  const formatMinute = (time: string) => time.slice(0, 16).replace('T', ' ');
  if (Date.parse(start) === 0) return `All calls to ${formatMinute(end)} UTC`;
  return `${formatMinute(start)} to ${formatMinute(end)} UTC`;
}
