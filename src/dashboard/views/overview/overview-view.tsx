// The first look: what was spent and saved, what runs and what it waits for, what waits for a person (17 §3).
import type { ComponentChildren } from 'preact';
import { useState } from 'preact/hooks';
import type { MetisClient, Session } from '#client/client.ts';
import { useApi } from '#dashboard/data/api.ts';
import { getTitle, useNow, useOpenApprovals, usePolled, useSessionsById } from '#dashboard/data/queries.ts';
import { computeShare, describeWaiting, duration, formatCount, needsPerson } from '#dashboard/format/format.ts';
import { buildBars, sumSides } from '#dashboard/parts/chart/spend-bars.ts';
import { SpendChart } from '#dashboard/parts/chart/spend-chart.tsx';
import { Menu } from '#dashboard/parts/fields.tsx';
import { Money, MoneySum, State, Time } from '#dashboard/parts/labels.tsx';
import { Empty, ExactFigure, Failure, Skeleton, Stat, Stats } from '#dashboard/parts/panels.tsx';
import { formatPlace, formatPlaceWithQuery, goTo, type Place } from '#dashboard/shell/place.ts';
import { percent } from '../cost/cost-figures.tsx';
import {
  askCost,
  type CostAnswer,
  type CostQuestion,
  NO_FILTER,
  parseCostQuestion,
  RANGES,
} from '../cost/cost-question.ts';
import { sessionName } from '../cost/group-rows.tsx';

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

/** Null while it is not known yet. */
function Running({ sessions }: { readonly sessions: readonly Session[] | null }) {
  const shown = sessions?.slice(0, SHOWN) ?? [];
  return (
    <Panel title="Running" more={<a href={formatPlace('sessions')}>All sessions</a>}>
      {sessions === null && <p class="panel-note quiet">Loading…</p>}
      {sessions?.length === 0 && <p class="panel-note quiet">No session is running.</p>}
      <ul>
        {shown.map((session) => {
          const waits = describeWaiting(session.waiting_on);
          return (
            <li key={session.id}>
              <div class="list-main">
                <a href={formatPlace('sessions', session.id)}>{getTitle(session)}</a>
                <span class="sub">
                  {waits === '' ? (
                    <State state={session.status} />
                  ) : (
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

function Waiting() {
  const { data } = useOpenApprovals();
  const now = useNow();
  const open = data?.approvals ?? [];
  const shown = open.slice(0, SHOWN);
  const sessions = useSessionsById(shown.map(({ root_session_id }) => root_session_id));
  return (
    <Panel title="Waiting for you" more={<a href={formatPlace('approvals')}>Approvals</a>}>
      {open.length === 0 && <p class="panel-note quiet">{data === null ? 'Loading…' : 'No open approvals.'}</p>}
      <ul>
        {shown.map((one) => (
          <li key={one.confirmation_request_id}>
            <div class="list-main">
              <a href={formatPlace('approvals')}>
                Run <code>{one.tool_name}</code>?
              </a>
              <span class="sub">{sessionName(sessions.get(one.root_session_id))}</span>
            </div>
            <div class="list-end number quiet">{duration(Math.max(0, Date.parse(one.expires_at) - now))} left</div>
          </li>
        ))}
      </ul>
      {open.length > SHOWN && <p class="panel-note quiet">and {open.length - SHOWN} more</p>}
    </Panel>
  );
}

function MostExpensive({ answer }: { readonly answer: CostAnswer }) {
  const rows = answer.groups.data;
  const sessions = useSessionsById(rows.flatMap((row) => row.root_session_id ?? []));
  const highestCost = rows[0]?.cost_usd ?? '0';
  return (
    <Panel title="Most expensive sessions" more={<a href={formatPlace('cost')}>Cost</a>}>
      {rows.length === 0 && <p class="panel-note quiet">No calls in this period.</p>}
      <ul>
        {rows.map((row) => (
          <li key={row.root_session_id}>
            <div class="list-main">
              <a href={formatPlace('sessions', row.root_session_id ?? '')}>
                {sessionName(sessions.get(row.root_session_id ?? ''))}
              </a>
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
const ACTIVE = 100;
/** Where nothing has changed. */
const REPORTS_MS = 30_000;
const OFFERED = RANGES.filter(({ value }) => value !== 'custom');

export function OverviewView({ place }: { readonly place: Place }) {
  const { client } = useApi();
  const asked = parseCostQuestion(place);
  const range = asked.range === 'custom' ? '7d' : asked.range;
  const sessions = usePolled((signal) => askSessions(client, signal), 'overview');
  const { answer, error, reload } = useReports(range, sessions.data === null ? null : computeDigest(sessions.data));
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
        {answer === null ? error === null && <Skeleton rows={7} /> : <Spent answer={answer} />}
        <div class="panels">
          <Running sessions={sessions.data?.active ?? null} />
          <Waiting />
          {answer !== null && <MostExpensive answer={answer} />}
        </div>
      </div>
    </div>
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
      <Stats>
        <Stat name="Spent">
          <ExactFigure usd={totals.cost_usd} />
        </Stat>
        <Stat name="Planner">
          <ExactFigure usd={planner} />
        </Stat>
        <Stat name="Workers">
          <ExactFigure usd={workers} />
        </Stat>
        <Stat name="Saved by delegating">
          <ExactFigure usd={data.savings_usd} /> <span class="quiet">{percent(data.savings_pct)}</span>
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

interface Sessions {
  readonly active: readonly Session[];
  readonly newest: readonly Session[];
}

async function askSessions(client: MetisClient, signal: AbortSignal): Promise<Sessions> {
  const [active, newest] = await Promise.all([
    client.listSessions({ status: ['running', 'interrupted'], limit: ACTIVE }, { signal }),
    client.listSessions({ limit: NEWEST }, { signal }),
  ]);
  return { active: active.sessions, newest: newest.sessions };
}

/** Differs when there is something new to report: a session, or what one has cost. */
function computeDigest({ active, newest }: Sessions): string {
  return [...active, ...newest].map((one) => `${one.id} ${one.cost_so_far_usd} ${one.workers_cost_usd}`).join();
}

/** The reports, asked again when `digest` changes and every half minute; the ones before stay until then. */
function useReports(range: CostQuestion['range'], digest: string | null) {
  const { client } = useApi();
  const none = { ...NO_FILTER, from: null, to: null };
  const question: CostQuestion = { ...none, range, group: 'root_session', pricing: 'stamped', baseline: 'planner' };
  const { data, error, reload } = usePolled(
    (signal) => (digest === null ? Promise.resolve(null) : askCost(client, question, TREES, signal)),
    `${range} ${digest}`,
    REPORTS_MS,
  );
  const [last, setLast] = useState<CostAnswer | null>(null);
  if (data !== null && data !== last) setLast(data);
  return { answer: data ?? last, error, reload };
}
