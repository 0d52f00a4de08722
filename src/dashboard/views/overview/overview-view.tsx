// The first look: what was spent and saved, what runs and what it waits for, what waits for a person (17 §3).
import { useState } from 'preact/hooks';
import type { MetisClient, Session } from '#client/client.ts';
import { useApi } from '#dashboard/data/api.ts';
import { usePolled } from '#dashboard/data/polled.ts';
import { barsOf, sidesOf } from '#dashboard/parts/chart/spend.ts';
import { SpendChart } from '#dashboard/parts/chart/spend-chart.tsx';
import { Menu } from '#dashboard/parts/menu.tsx';
import { Empty, Failure, Skeleton } from '#dashboard/parts/notice.tsx';
import { ExactFigure, Stat, Stats } from '#dashboard/parts/stat.tsx';
import { type Place, placeOf, placeWith } from '#dashboard/shell/place.ts';
import { goTo } from '#dashboard/shell/router.ts';
import { type CostQuestion, NO_FILTER, questionOf, RANGES } from '../cost/cost-question.ts';
import { askCost, type CostAnswer } from '../cost/cost-report.ts';
import { percent } from '../cost/figures.tsx';
import { Dearest, Running, Waiting } from './panels.tsx';

const TREES = 8;
const NEWEST = 50;
const ACTIVE = 100;
/** Where nothing has changed. */
const REPORTS_MS = 30_000;
const OFFERED = RANGES.filter(({ value }) => value !== 'custom');

export function OverviewView({ place }: { readonly place: Place }) {
  const { client } = useApi();
  const asked = questionOf(place);
  const range = asked.range === 'custom' ? '7d' : asked.range;
  const sessions = usePolled((signal) => askSessions(client, signal), 'overview');
  const { answer, error, reload } = useReports(range, sessions.data === null ? null : digestOf(sessions.data));
  return (
    <div class="view overview-view">
      <header class="view-head">
        <h1>Overview</h1>
        <div class="tools">
          <Menu
            label="Range"
            choices={OFFERED}
            value={range}
            onChoose={(value) => goTo(placeWith('overview', { range: value === '7d' ? null : value }))}
          />
        </div>
      </header>
      <div class="view-body overview">
        {error !== null && <Failure error={error} title="The reports cannot be read" retry={reload} />}
        {sessions.error !== null && (
          <Failure error={sessions.error} title="The sessions cannot be read" retry={sessions.reload} />
        )}
        {answer === null ? error === null && <Skeleton rows={7} /> : <Spent answer={answer} />}
        <div class="panels">
          <Running sessions={sessions.data?.active ?? null} />
          <Waiting />
          {answer !== null && <Dearest answer={answer} />}
        </div>
      </div>
    </div>
  );
}

function Spent({ answer }: { readonly answer: CostAnswer }) {
  const { totals, window } = answer.groups;
  if (totals.call_count === 0)
    return (
      <Empty icon="overview" title="Nothing was spent in this time">
        <p>
          Open a session under <a href={placeOf('sessions')}>Sessions</a>, or watch one without a key:{' '}
          <code>metis demo --keep</code>
        </p>
      </Empty>
    );
  const { planner, workers } = sidesOf(answer.spend);
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
        bars={barsOf(answer.spend, answer.bucket, window)}
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
function digestOf({ active, newest }: Sessions): string {
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
