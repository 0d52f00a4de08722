// The first look: what was spent and saved, what runs and what it waits for, what waits for a person (17 §3).
import type { ComponentChildren } from 'preact';
import { useState } from 'preact/hooks';
import type { Session } from '#client/client.ts';
import { useApi, useMay } from '#dashboard/data/api.ts';
import { type AttentionItem, listAttention } from '#dashboard/data/attention.ts';
import { useNotificationPermission } from '#dashboard/data/notify.ts';
import { getTitle, useNow, useOpenApprovals, usePolled, useSessionsById } from '#dashboard/data/queries.ts';
import {
  computeShare,
  describeState,
  describeWaiting,
  duration,
  formatCount,
  isWaitingForPerson,
  needsPerson,
} from '#dashboard/format/format.ts';
import { buildBars, sumSides } from '#dashboard/parts/chart/spend-bars.ts';
import { SpendChart } from '#dashboard/parts/chart/spend-chart.tsx';
import { Menu } from '#dashboard/parts/fields.tsx';
import { isSessionSimulated, Money, MoneySum, Simulated, State, Time } from '#dashboard/parts/labels.tsx';
import { Empty, Failure, Figure, Skeleton, Stat, Stats } from '#dashboard/parts/panels.tsx';
import { formatPlace, formatPlaceWithQuery, goTo, type Place } from '#dashboard/shell/place.ts';
import { percent, SimulatedNote } from '../cost/cost-figures.tsx';
import {
  askCost,
  type CostAnswer,
  type CostQuestion,
  NO_FILTER,
  parseCostQuestion,
  RANGES,
} from '../cost/cost-question.ts';
import { PRIVATE, PRIVATE_NAME, sessionName } from '../cost/group-rows.tsx';
import { StartGuide } from '../help/start-guide.tsx';

// What runs, what waits for a person, and the most expensive trees.

const SHOWN = 8;

function Panel(props: {
  readonly title: string;
  readonly more: ComponentChildren;
  readonly children: ComponentChildren;
}) {
  return (
    <section class="panel list-panel">
      <header>
        <h2>{props.title}</h2>
        <span class="panel-more">{props.more}</span>
      </header>
      {props.children}
    </section>
  );
}

/** Sessions that go on by themselves; the others are under what waits for a person. */
function Running() {
  const { data } = useOpenApprovals();
  const sessions = data?.active.filter((session) => !isWaitingForPerson(session)) ?? null;
  const shown = sessions?.slice(0, SHOWN) ?? [];
  return (
    <Panel title="Running" more={<a href={formatPlace('sessions')}>All sessions</a>}>
      {sessions === null && <p class="panel-note quiet">Loading…</p>}
      {sessions?.length === 0 && (
        <p class="panel-note quiet">No session is running. A session appears here while it works on a message.</p>
      )}
      <ul>
        {shown.map((session) => {
          const waits = describeWaiting(session.waiting_on);
          return (
            <li key={session.id}>
              <div class="list-main">
                <a href={formatPlace('sessions', session.id)}>{getTitle(session)}</a>
                <span class="sub">
                  {waits === '' && <State state={describeState(session)} />}
                  {waits !== '' && (
                    <span class={session.waiting_on.some(needsPerson) ? 'asks' : undefined}>waiting for {waits}</span>
                  )}
                </span>
              </div>
              <div class="list-end">
                <MoneySum usd={[session.cost_so_far_usd, session.workers_cost_usd]} />
                <span class="sub">
                  {session.active_worker_count > 0 && `${formatCount(session.active_worker_count, 'worker')} · `}
                  <Time at={session.updated_at} />
                </span>
              </div>
            </li>
          );
        })}
      </ul>
      {(sessions?.length ?? 0) > SHOWN && <p class="panel-note quiet">and {(sessions?.length ?? 0) - SHOWN} more</p>}
    </Panel>
  );
}

function Attention() {
  const { data } = useOpenApprovals();
  const roots = data?.approvals.slice(0, SHOWN).map(({ root_session_id }) => root_session_id) ?? [];
  const sessions = useSessionsById(roots);
  const may = useMay();
  const open = data && listAttention(data, sessions, may);
  return (
    <Panel title="Needs attention" more={<AttentionTools />}>
      {open === null && <p class="panel-note quiet">Loading…</p>}
      {open?.length === 0 && (
        <p class="panel-note quiet">
          Nothing is waiting for you. Approvals, reached caps, failed turns, refused keys and files that need your trust
          appear here.
        </p>
      )}
      <ul>
        {open?.slice(0, SHOWN).map((item) => (
          <AttentionRow key={`${item.kind} ${item.id}`} item={item} />
        ))}
      </ul>
      {open !== null && open.length > SHOWN && <p class="panel-note quiet">and {open.length - SHOWN} more</p>}
    </Panel>
  );
}

function AttentionTools() {
  const { permission, ask } = useNotificationPermission();
  return (
    <>
      {permission === 'default' && (
        <button type="button" class="button ghost" onClick={ask}>
          Notify me
        </button>
      )}
      <a href={formatPlace('approvals')}>Approvals</a>
    </>
  );
}

function AttentionRow({ item }: { readonly item: AttentionItem }) {
  const { kind, text, code, note, place, expires } = item;
  return (
    <li data-kind={kind}>
      <div class="list-main">
        <a href={place}>
          {text}
          {code !== undefined && (
            <>
              {' '}
              <code>{code}</code>?
            </>
          )}
        </a>
        <span class="sub">{note}</span>
      </div>
      {expires !== undefined && <TimeLeft at={expires} />}
    </li>
  );
}

function TimeLeft({ at }: { readonly at: string }) {
  const left = Date.parse(at) - useNow();
  return <div class="list-end number quiet">{duration(Math.max(0, left))} left</div>;
}

function MostExpensive({ answer }: { readonly answer: CostAnswer }) {
  const rows = answer.groups.data;
  const sessions = useSessionsById(rows.flatMap((row) => row.root_session_id ?? []));
  const highestCost = rows[0]?.cost_usd ?? '0';
  return (
    <Panel title="Most expensive sessions" more={<a href={formatPlace('cost')}>Cost</a>}>
      {rows.length === 0 && (
        <p class="panel-note quiet">
          No calls in this period. A session appears here when a model has answered; a longer range shows earlier ones.
        </p>
      )}
      <ul>
        {rows.map((row) => (
          <li key={row.root_session_id}>
            <div class="list-main">
              {row.root_session_id === PRIVATE && <span>{PRIVATE_NAME}</span>}
              {row.root_session_id !== PRIVATE && (
                <a href={formatPlace('sessions', row.root_session_id ?? '')}>
                  {sessionName(sessions.get(row.root_session_id ?? ''))}{' '}
                  {isSessionSimulated(sessions.get(row.root_session_id ?? '')) && <Simulated />}
                </a>
              )}
              <span class="share-bar" aria-hidden="true">
                <span
                  class="share-part planner"
                  style={{ width: `${computeShare(row.planner_cost_usd ?? '0', highestCost) * 100}%` }}
                />
                <span
                  class="share-part workers"
                  style={{ width: `${computeShare(row.worker_cost_usd ?? '0', highestCost) * 100}%` }}
                />
              </span>
            </div>
            <div class="list-end">
              <Money usd={row.cost_usd} />
              <span class="sub">{formatCount(row.call_count, 'call')}</span>
            </div>
          </li>
        ))}
      </ul>
    </Panel>
  );
}

const TREES = 8;
const NEWEST = 50;
/** Where nothing has changed. */
const REPORTS_MS = 30_000;
const OFFERED = RANGES.filter(({ value }) => value !== 'custom');

export function OverviewView({ place }: { readonly place: Place }) {
  const { client } = useApi();
  const asked = parseCostQuestion(place);
  const range = asked.range === 'custom' ? '7d' : asked.range;
  const { data: pulse } = useOpenApprovals();
  const sessions = usePolled((signal) => client.listSessions({ limit: NEWEST }, { signal }), 'overview');
  const known = pulse && sessions.data && [...pulse.active, ...sessions.data.sessions];
  const { answer, error, reload } = useReports(range, known && computeDigest(known));
  return (
    <div class="view overview-view">
      <header class="view-head">
        <h1>Overview</h1>
        <div class="tools">
          <Menu
            label="Range"
            choices={OFFERED}
            value={range}
            onChoose={(value) => goTo(formatPlaceWithQuery('overview', { range: value === '7d' ? null : value }))}
          />
        </div>
      </header>
      <div class="view-body overview">
        {error !== null && <Failure error={error} title="The reports could not be loaded" retry={reload} />}
        {sessions.error !== null && (
          <Failure error={sessions.error} title="The sessions could not be loaded" retry={sessions.reload} />
        )}
        {sessions.data?.sessions.length === 0 && <StartGuide />}
        {known !== null && known.length > 0 && known.every(isSessionSimulated) && <OnlySimulated />}
        {answer === null && error === null && <Skeleton rows={7} />}
        {answer !== null && known?.length !== 0 && <Spent answer={answer} />}
        <div class="panels">
          <Running />
          <Attention />
          {answer !== null && <MostExpensive answer={answer} />}
        </div>
      </div>
    </div>
  );
}

function OnlySimulated() {
  return (
    <p class="panel-note quiet">
      All sessions so far are simulated. <a href={formatPlace('help')}>Connect a client or set a key</a>
    </p>
  );
}

function Spent({ answer }: { readonly answer: CostAnswer }) {
  const { totals, window } = answer.groups;
  if (totals.call_count === 0)
    return (
      <Empty icon="overview" title="No cost in this period">
        <p>
          Open a session under <a href={formatPlace('sessions')}>Sessions</a>, or watch one without a key:{' '}
          <code>metis demo --keep</code>
        </p>
      </Empty>
    );
  const { planner, workers } = sumSides(answer.spend);
  const { data } = answer.savings;
  return (
    <>
      <Stats note={<SimulatedNote simulated={answer.groups.simulated} />}>
        <Stat name="Spent">
          <Figure usd={totals.cost_usd} />
        </Stat>
        <Stat name="Planner">
          <Figure usd={planner} />
        </Stat>
        <Stat name="Workers">
          <Figure usd={workers} />
        </Stat>
        <Stat name="Saved by delegating">
          <Figure usd={data.savings_usd} /> <span class="quiet">{percent(data.savings_pct)}</span>
        </Stat>
      </Stats>
      <SpendChart
        title={`Spend by ${answer.bucket}`}
        bars={buildBars(answer.spend, answer.bucket, window)}
        total={totals.cost_usd}
      />
    </>
  );
}

/** Differs when there is something new to report: a session, or what one has cost. */
function computeDigest(sessions: readonly Session[]): string {
  return sessions.map((one) => `${one.id} ${one.cost_so_far_usd} ${one.workers_cost_usd}`).join();
}

/** The reports, asked again when `digest` changes and every half minute; the ones before stay until then. */
function useReports(range: CostQuestion['range'], digest: string | null) {
  const { client } = useApi();
  const none = { ...NO_FILTER, from: null, to: null };
  const question: CostQuestion = {
    ...none,
    range,
    group: 'root_session',
    pricing: 'stamped',
    baseline: 'planner',
    replaced: null,
    instead: null,
  };
  const { data, error, reload } = usePolled(
    async (signal) => {
      if (digest === null) return null;
      return askCost(client, question, TREES, signal);
    },
    `${range} ${digest}`,
    REPORTS_MS,
  );
  const [last, setLast] = useState<CostAnswer | null>(null);
  if (data !== null && data !== last) setLast(data);
  return { answer: data ?? last, error, reload };
}
