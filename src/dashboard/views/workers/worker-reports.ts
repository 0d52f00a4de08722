// Definitions of a workspace and what they cost, from the interface.
import type { CostRow, MetisClient, Session, WorkerInfo } from '#client/client.ts';
import { workspaceHash } from '#dashboard/data/queries.ts';
import { formatPlace, type Place } from '#dashboard/shell/place.ts';
import { systemClock } from '#protocol/clock.ts';
import { RANGES, type Range, resolveWindow } from '../cost/cost-question.ts';

const PAGE = 200;
/** Of a worker's sessions, beside its definition. */
const NEWEST = 20;
/** What a report gives at most in one page. */
const MOST_ROWS = 10_000;

/** What is asked about; `session` adds the workers of its tree. */
interface Scope {
  readonly workspace: string;
  readonly session: string | null;
}

interface WorkerPage {
  readonly workers: readonly WorkerInfo[];
  readonly more: boolean;
}

/** The first by name, at least `wanted` of them where there are as many. */
export async function askWorkers(
  client: MetisClient,
  scope: Scope,
  wanted: number,
  signal: AbortSignal,
): Promise<WorkerPage> {
  const workers: WorkerInfo[] = [];
  let cursor: string | undefined;
  do {
    const page = await client.listWorkerDefinitions({ ...scopeQuery(scope), limit: PAGE, cursor }, { signal });
    workers.push(...page.workers);
    cursor = page.next_cursor ?? undefined;
  } while (cursor !== undefined && workers.length < wanted);
  return { workers, more: cursor !== undefined };
}

export function scopeQuery({ workspace, session }: Scope): { workspace_path: string; session_id?: string } {
  return { workspace_path: workspace, ...(session !== null && { session_id: session }) };
}

export interface WorkerCosts {
  readonly byName: ReadonlyMap<string, CostRow>;
  /** The browser cannot separate the workspaces of the report: the figures are of all of them. */
  readonly everywhere: boolean;
}

/** By the worker's name: workers of one name in one workspace count together. */
export async function askCosts(
  client: MetisClient,
  workspace: string,
  range: Range,
  signal: AbortSignal,
): Promise<WorkerCosts> {
  const window = resolveWindow({ range, from: null, to: null }, systemClock.now());
  const hash = await workspaceHash(workspace);
  const report = await client.getCost(
    {
      from: window?.from,
      group_by: 'worker_name',
      limit: MOST_ROWS,
      ...(hash !== null && { workspace_hash: hash }),
    },
    { signal },
  );
  const byName = new Map(report.data.map((row) => [row.worker_name ?? '', row] as const));
  return { byName, everywhere: hash === null };
}

/** The newest sessions of a workspace that ran as this worker. */
export async function askSessions(
  client: MetisClient,
  workspace: string,
  name: string,
  signal: AbortSignal,
): Promise<{ readonly sessions: readonly Session[]; readonly more: boolean }> {
  const query = { workspace_path: workspace, worker_name: name, limit: NEWEST };
  const { sessions, next_cursor } = await client.listSessions(query, { signal });
  return { sessions, more: next_cursor !== null };
}

// What the workers are asked for: it lives in the address, as the cost view's does.

/** Those of the reports that need no dates. */
export const WORKER_RANGES = RANGES.filter(({ value }) => value !== 'custom');
const DEFAULT_RANGE: Range = '30d';

export interface WorkerQuestion {
  /** Null: that of the newest session. */
  readonly workspace: string | null;
  /** Whose own workers are shown beside the project's. */
  readonly session: string | null;
  readonly range: Range;
}

export function parseWorkerQuestion({ query }: Place): WorkerQuestion {
  const range = WORKER_RANGES.find(({ value }) => value === query.get('range'))?.value ?? DEFAULT_RANGE;
  return { workspace: query.get('workspace'), session: query.get('session'), range };
}

/** Of the list, or of one worker. */
export function formatWorkersPlace(question: WorkerQuestion, name?: string): string {
  const query = new URLSearchParams();
  if (question.workspace !== null) query.set('workspace', question.workspace);
  if (question.session !== null) query.set('session', question.session);
  if (question.range !== DEFAULT_RANGE) query.set('range', question.range);
  let path = formatPlace('workers');
  if (name !== undefined) path = formatPlace('workers', name);
  if (query.size === 0) return path;
  return `${path}?${query}`;
}
