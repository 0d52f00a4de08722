// One named worker: its whole definition, what it cost, and the sessions that ran as it (13 §10).
import type { WorkerDetail } from '#client/client.ts';
import { useApi } from '#dashboard/data/api.ts';
import { getTitle, usePolled } from '#dashboard/data/queries.ts';
import { describeState } from '#dashboard/format/format.ts';
import { Badge, Count, Icon, Money, MoneySum, State, Time } from '#dashboard/parts/labels.tsx';
import { CodeBlock } from '#dashboard/parts/markdown.tsx';
import { Empty, Failure, Skeleton, Stat, Stats } from '#dashboard/parts/panels.tsx';
import { formatPlace, formatPlaceWithQuery } from '#dashboard/shell/place.ts';
import { Source, WorkerLimits, WorkerModel, WorkerTools } from './worker-limits.tsx';
import { Problems, State as WorkerState } from './worker-problems.tsx';
import {
  askCosts,
  askSessions,
  formatWorkersPlace,
  scopeQuery,
  WORKER_RANGES,
  type WorkerQuestion,
} from './worker-reports.ts';

const EVERY_MS = 10_000;

export function WorkerView(props: {
  readonly question: WorkerQuestion & { readonly workspace: string };
  readonly name: string;
}) {
  const { question, name } = props;
  const { client } = useApi();
  const read = usePolled(
    (signal) => client.getWorkerDefinition(name, scopeQuery(question), { signal }),
    `${question.session}`,
    EVERY_MS,
  );
  const worker = read.data;
  return (
    <div class="view workers-view">
      <header class="view-head">
        <a class="button ghost icon-only" href={formatWorkersPlace(question)} aria-label="All workers">
          <Icon name="back" />
        </a>
        <div class="worker-title">
          <h1>{name}</h1>
          {worker && <WorkerState worker={worker} />}
        </div>
        {worker && <WorkerTools worker={worker} workspace={question.workspace} onChanged={read.reload} />}
      </header>
      <div class="view-body">
        {read.error !== null && (
          <Failure error={read.error} title="The worker could not be loaded" retry={read.reload} />
        )}
        {worker === null && read.error === null && <Skeleton rows={8} />}
        {worker !== null && (
          <>
            <Figures question={question} worker={worker} />
            <Problems workers={[worker]} />
            {worker.definition !== null && <WorkerLimits definition={worker.definition} />}
            <Texts worker={worker} />
          </>
        )}
        <Sessions workspace={question.workspace} name={name} />
      </div>
    </div>
  );
}

function Figures(props: {
  readonly question: WorkerQuestion & { readonly workspace: string };
  readonly worker: WorkerDetail;
}) {
  const { question, worker } = props;
  const { workspace, range } = question;
  const { client } = useApi();
  const costs = usePolled((signal) => askCosts(client, workspace, range, signal), range, EVERY_MS);
  const row = costs.data?.byName.get(worker.name);
  const { model, tier } = worker;
  const during = WORKER_RANGES.find(({ value }) => value === range)?.label ?? '';
  return (
    <>
      {worker.description !== null && <p class="worker-about">{worker.description}</p>}
      {costs.error !== null && (
        <Failure error={costs.error} title="The cost of the worker could not be loaded" retry={costs.reload} />
      )}
      <Stats busy={costs.data === null}>
        <Stat name="Cost" note={costs.data?.everywhere ? `${during}, all workspaces` : during}>
          <Money usd={row?.cost_usd ?? '0'} />
        </Stat>
        <Stat name="Model calls" note={during}>
          <Count n={row?.call_count ?? 0} unit="call" />
        </Stat>
        <Stat name="Model" note={model ?? (tier === null ? undefined : 'tier')}>
          <WorkerModel worker={worker} />
        </Stat>
        <Stat name="Source" note={worker.read_only ? 'The server never writes this file' : undefined}>
          <span class="worker-source">
            <Source worker={worker} />
          </span>
        </Stat>
      </Stats>
    </>
  );
}

function Texts({ worker }: { readonly worker: WorkerDetail }) {
  const { resolved_instructions, instructions_source, yaml } = worker;
  return (
    <>
      {resolved_instructions !== null && instructions_source !== 'inline' && (
        <section class="panel">
          <h2>
            Instructions <span class="quiet worker-file">{instructions_source}</span>
          </h2>
          <div class="panel-text">
            <CodeBlock text={resolved_instructions} name="Instructions" />
          </div>
        </section>
      )}
      {yaml !== null && (
        <section class="panel">
          <h2>Definition</h2>
          <div class="panel-text">
            <CodeBlock text={yaml} name="Definition" />
          </div>
        </section>
      )}
    </>
  );
}

function Sessions({ workspace, name }: { readonly workspace: string; readonly name: string }) {
  const { client } = useApi();
  const { data, error, reload } = usePolled(
    (signal) => askSessions(client, workspace, name, signal),
    'sessions',
    EVERY_MS,
  );
  return (
    <section class="panel" aria-label="Recent sessions">
      <h2>Recent sessions</h2>
      {error !== null && <Failure error={error} title="The sessions could not be loaded" retry={reload} />}
      {data?.sessions.length === 0 && (
        <Empty icon="sessions" title="No sessions of this worker">
          <p>
            No session in this workspace has run as this worker. Its sessions appear here when a planner calls it, or
            when you choose it as “Named worker” in “New session”.
          </p>
        </Empty>
      )}
      {data !== null && data.sessions.length > 0 && (
        <ul class="worker-sessions">
          {data.sessions.map((session) => (
            <li key={session.id}>
              <a href={formatPlace('sessions', session.id)} title={getTitle(session)}>
                {getTitle(session)}
              </a>
              {!session.is_worker && <Badge>opened directly</Badge>}
              <State state={describeState(session)} />
              <MoneySum usd={[session.cost_so_far_usd, session.workers_cost_usd]} />
              <span class="quiet">
                <Time at={session.updated_at} />
              </span>
            </li>
          ))}
        </ul>
      )}
      {data?.more && data.sessions.length > 0 && (
        <p class="panel-foot">
          <a href={formatPlaceWithQuery('sessions', { worker: name })}>All sessions of this worker</a>
        </p>
      )}
    </section>
  );
}
