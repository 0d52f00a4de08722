// What runs, what waits for a person, and the dearest trees.
import type { ComponentChildren } from 'preact';
import type { Session } from '#client/client.ts';
import { useNow } from '#dashboard/data/now.ts';
import { useOpenApprovals } from '#dashboard/data/open-approvals.ts';
import { titleOf, useSessionsById } from '#dashboard/data/titles.ts';
import { plural } from '#dashboard/format/number.ts';
import { duration } from '#dashboard/format/time.ts';
import { shareOf } from '#dashboard/format/usd.ts';
import { asksPerson, waitsFor } from '#dashboard/format/waiting.ts';
import { Money, MoneySum } from '#dashboard/parts/amount.tsx';
import { State } from '#dashboard/parts/badge.tsx';
import { Time } from '#dashboard/parts/time.tsx';
import { placeOf } from '#dashboard/shell/place.ts';
import type { CostAnswer } from '../cost/cost-report.ts';
import { sessionName } from '../cost/group-rows.tsx';

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
export function Running({ sessions }: { readonly sessions: readonly Session[] | null }) {
  const shown = sessions?.slice(0, SHOWN) ?? [];
  return (
    <Panel title="Running" more={<a href={placeOf('sessions')}>All sessions</a>}>
      {sessions === null && <p class="panel-note quiet">Loading…</p>}
      {sessions?.length === 0 && <p class="panel-note quiet">Nothing runs at the moment.</p>}
      <ul>
        {shown.map((session) => {
          const waits = waitsFor(session.waiting_on);
          return (
            <li key={session.id}>
              <div class="list-main">
                <a href={placeOf('sessions', session.id)}>{titleOf(session)}</a>
                <span class="sub">
                  {waits === '' ? (
                    <State state={session.status} />
                  ) : (
                    <span class={session.waiting_on.some(asksPerson) ? 'asks' : undefined}>waits for {waits}</span>
                  )}
                </span>
              </div>
              <div class="list-end">
                <MoneySum usd={[session.cost_so_far_usd, session.workers_cost_usd]} />
                <span class="sub">
                  {session.active_worker_count > 0 && `${plural(session.active_worker_count, 'worker')} · `}
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

export function Waiting() {
  const { data } = useOpenApprovals();
  const now = useNow();
  const open = data?.approvals ?? [];
  const shown = open.slice(0, SHOWN);
  const sessions = useSessionsById(shown.map(({ root_session_id }) => root_session_id));
  return (
    <Panel title="Waits for you" more={<a href={placeOf('approvals')}>Approvals</a>}>
      {open.length === 0 && <p class="panel-note quiet">{data === null ? 'Loading…' : 'No open approvals.'}</p>}
      <ul>
        {shown.map((one) => (
          <li key={one.confirmation_request_id}>
            <div class="list-main">
              <a href={placeOf('approvals')}>
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

export function Dearest({ answer }: { readonly answer: CostAnswer }) {
  const rows = answer.groups.data;
  const sessions = useSessionsById(rows.flatMap((row) => row.root_session_id ?? []));
  const dearest = rows[0]?.cost_usd ?? '0';
  return (
    <Panel title="Dearest trees" more={<a href={placeOf('cost')}>Cost</a>}>
      {rows.length === 0 && <p class="panel-note quiet">No calls in this time.</p>}
      <ul>
        {rows.map((row) => (
          <li key={row.root_session_id}>
            <div class="list-main">
              <a href={placeOf('sessions', row.root_session_id ?? '')}>
                {sessionName(sessions.get(row.root_session_id ?? ''))}
              </a>
              <span class="share-bar" aria-hidden="true">
                <span
                  class="share-part planner"
                  style={{ width: `${shareOf(row.planner_cost_usd ?? '0', dearest) * 100}%` }}
                />
                <span
                  class="share-part workers"
                  style={{ width: `${shareOf(row.worker_cost_usd ?? '0', dearest) * 100}%` }}
                />
              </span>
            </div>
            <div class="list-end">
              <Money usd={row.cost_usd} />
              <span class="sub">{plural(row.call_count, 'call')}</span>
            </div>
          </li>
        ))}
      </ul>
    </Panel>
  );
}
