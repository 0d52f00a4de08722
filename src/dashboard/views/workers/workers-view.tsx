// The named workers of a workspace: what each may touch, what is wrong with it, what it cost (13 §10, 17 §3).
import { useState } from 'preact/hooks';
import type { Session, WorkerInfo } from '#client/client.ts';
import { useApi } from '#dashboard/data/api.ts';
import { getTitle, usePolled, useWorkspacePaths } from '#dashboard/data/queries.ts';
import { baseName, emptyToNull, formatAtLeast, formatCount, formatNumber } from '#dashboard/format/format.ts';
import { Menu } from '#dashboard/parts/fields.tsx';
import { Badge, Count, Money } from '#dashboard/parts/labels.tsx';
import { Empty, Failure, Skeleton } from '#dashboard/parts/panels.tsx';
import { type Column, Table } from '#dashboard/parts/table.tsx';
import { goTo, type Place } from '#dashboard/shell/place.ts';
import { TrustPanel } from './trust-panel.tsx';
import { MayTouch, Source, WorkerModel } from './worker-limits.tsx';
import { Problems, State } from './worker-problems.tsx';
import {
  askCosts,
  askWorkers,
  formatWorkersPlace,
  parseWorkerQuestion,
  WORKER_RANGES,
  type WorkerCosts,
  type WorkerQuestion,
} from './worker-reports.ts';
import { WorkerView } from './worker-view.tsx';

// Tools of MCP servers that are left out, and servers that do not answer.

const PROBLEMS_EVERY_MS = 10_000;
const PROBLEMS_SHOWN = 50;

/** Nothing where all is well. */
function ToolProblems({ workspace }: { readonly workspace: string }) {
  const { client } = useApi();
  const list = usePolled(
    (signal) => client.listTools({ workspace_path: workspace }, { signal }),
    workspace,
    PROBLEMS_EVERY_MS,
  );
  const problems = list.data?.problems ?? [];
  if (problems.length === 0) return null;
  return (
    <section class="panel problems" aria-label="MCP servers">
      <header>
        <h2>MCP servers</h2>
        <Badge tone="warn">{formatCount(problems.length, 'warning')}</Badge>
      </header>
      <ul>
        {problems.slice(0, PROBLEMS_SHOWN).map(({ mcp_server, message }) => (
          <li key={`${mcp_server} ${message}`}>
            <Badge tone="warn">warning</Badge> <code>{mcp_server ?? '.mcp.json'}</code> {message}
          </li>
        ))}
      </ul>
      {problems.length > PROBLEMS_SHOWN && (
        <p class="panel-foot quiet">and {formatCount(problems.length - PROBLEMS_SHOWN, 'more')}</p>
      )}
    </section>
  );
}

// What is wrong with definitions, and odd about them, by file and line.

// The columns of a worker's row.

/** `costs` is null until they are known. */
function workerColumns(costs: WorkerCosts | null, getPlace: (name: string) => string): readonly Column<WorkerInfo>[] {
  return [
    {
      id: 'name',
      title: 'Worker',
      cell: (worker) => (
        <>
          <a class="worker-name" href={getPlace(worker.name)}>
            {worker.name}
          </a>{' '}
          <State worker={worker} />
          {worker.description !== null && <p class="worker-description">{worker.description}</p>}
        </>
      ),
    },
    { id: 'source', title: 'Source', cell: (worker) => <Source worker={worker} /> },
    {
      id: 'model',
      title: 'Model',
      cell: (worker) => <WorkerModel worker={worker} />,
    },
    { id: 'touch', title: 'Access', cell: (worker) => <MayTouch worker={worker} /> },
    {
      id: 'calls',
      title: 'Calls',
      numeric: true,
      cell: ({ name }) => costs && <Count n={costs.byName.get(name)?.call_count ?? 0} unit="call" rest=" to models" />,
    },
    {
      id: 'cost',
      title: 'Cost',
      numeric: true,
      cell: ({ name }) => costs && <Money usd={costs.byName.get(name)?.cost_usd ?? '0'} />,
    },
  ];
}

const EVERY_MS = 10_000;
const PAGE = 200;
const OFFERED_SESSIONS = 20;

/** One of them where the address names one, else all. */
export function WorkersView({ place }: { readonly place: Place }) {
  const paths = useWorkspacePaths();
  const question = parseWorkerQuestion(place);
  const [name] = place.rest;
  const workspace = question.workspace ?? paths.data?.[0] ?? null;
  if (workspace === null) {
    return (
      <div class="view workers-view">
        <header class="view-head">
          <h1>Workers</h1>
        </header>
        {paths.data !== null && <NoWorkspace />}
        {paths.data === null && paths.error === null && <Skeleton rows={6} />}
        {paths.data === null && paths.error !== null && (
          <Failure error={paths.error} title="The workspaces could not be loaded" retry={paths.reload} />
        )}
      </div>
    );
  }
  const chosen = { ...question, workspace };
  if (name !== undefined) return <WorkerView key={`${workspace} ${name}`} question={chosen} name={name} />;
  return <AllWorkers key={workspace} question={chosen} paths={paths.data ?? []} />;
}

function AllWorkers(props: {
  readonly question: WorkerQuestion & { readonly workspace: string };
  readonly paths: readonly string[];
}) {
  const { question, paths } = props;
  const { workspace, session, range } = question;
  const { client } = useApi();
  const [wanted, setWanted] = useState(PAGE);
  const list = usePolled(
    (signal) => askWorkers(client, { workspace, session }, wanted, signal),
    `${session} ${wanted}`,
    EVERY_MS,
  );
  const costs = usePolled((signal) => askCosts(client, workspace, range, signal), range, EVERY_MS);
  const workers = list.data?.workers ?? null;
  return (
    <div class="view workers-view">
      <header class="view-head">
        <h1>Workers</h1>
        <span class="quiet number" role="status">
          {workers && formatAtLeast(workers.length, list.data?.more ?? false)}
        </span>
        <Tools question={question} paths={paths} />
      </header>
      <div class="view-body">
        {list.error !== null && (
          <Failure error={list.error} title="The workers could not be loaded" retry={list.reload} />
        )}
        {costs.error !== null && (
          <Failure error={costs.error} title="The cost of the workers could not be loaded" retry={costs.reload} />
        )}
        <ToolProblems workspace={workspace} />
        <TrustPanel workspace={workspace} />
        {workers === null && list.error === null && <Skeleton rows={6} />}
        {workers?.length === 0 && <NoWorkers workspace={workspace} />}
        {workers !== null && workers.length > 0 && (
          <>
            <Problems workers={workers} getPlace={(name) => formatWorkersPlace(question, name)} />
            <div class="panel workers-table">
              <Table
                label="Workers"
                columns={workerColumns(costs.data, (name) => formatWorkersPlace(question, name))}
                rows={workers}
                rowKey={({ origin, name }) => `${origin} ${name}`}
              />
              {list.data?.more && (
                <p class="panel-foot">
                  <button type="button" class="button" onClick={() => setWanted(workers.length + PAGE)}>
                    Show more than {formatNumber(workers.length)}
                  </button>
                </p>
              )}
            </div>
            {costs.data?.everywhere && (
              <p class="quiet foot-note">
                Calls and cost include all workspaces, because this browser cannot distinguish workspaces over http.
              </p>
            )}
          </>
        )}
      </div>
    </div>
  );
}

function Tools(props: {
  readonly question: WorkerQuestion & { readonly workspace: string };
  readonly paths: readonly string[];
}) {
  const { question, paths } = props;
  const { workspace } = question;
  const { client } = useApi();
  const makers = usePolled(
    (signal) => client.listSessions({ workspace_path: workspace, limit: OFFERED_SESSIONS }, { signal }),
    'makers',
    EVERY_MS,
  );
  const changeQuestion = (next: Partial<WorkerQuestion>) => goTo(formatWorkersPlace({ ...question, ...next }));
  return (
    <div class="tools">
      <Menu
        label="Workspace"
        choices={[...new Set([...paths, workspace])].map((path) => ({
          value: path,
          label: baseName(path),
          hint: path,
        }))}
        value={workspace}
        onChoose={(chosen) => changeQuestion({ workspace: chosen, session: null })}
      />
      <Menu
        label="Created by"
        choices={makerChoices(makers.data?.sessions ?? [], question.session)}
        value={question.session ?? ''}
        onChoose={(chosen) => changeQuestion({ session: emptyToNull(chosen) })}
      />
      <Menu
        label="Cost in"
        choices={WORKER_RANGES}
        value={question.range}
        onChoose={(range) => changeQuestion({ range: range as WorkerQuestion['range'] })}
      />
    </div>
  );
}

function makerChoices(sessions: readonly Session[], chosen: string | null) {
  const known = sessions.map((session) => ({ value: String(session.id), label: shortTitle(getTitle(session)) }));
  if (chosen !== null && !known.some(({ value }) => value === chosen))
    known.unshift({ value: chosen, label: 'An older session' });
  return [{ value: '', label: 'you' }, ...known];
}

function shortTitle(title: string): string {
  if (title.length > 40) return `${title.slice(0, 39)}…`;
  return title;
}

function NoWorkers({ workspace }: { readonly workspace: string }) {
  return (
    <Empty icon="worker" title="No named workers">
      <p>
        A file such as <code>.metis/workers/reviewer.yaml</code> in {workspace} defines a worker: instructions, model,
        files and tools. Metis also reads the agents in <code>.claude/agents</code>.
      </p>
    </Empty>
  );
}

function NoWorkspace() {
  return (
    <Empty icon="worker" title="No workspace yet">
      <p>Named workers belong to a workspace. Open a session in a workspace to see its workers.</p>
    </Empty>
  );
}
