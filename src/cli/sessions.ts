// `metis sessions`: what there is on the server, newest first (17 §2).
import { createMetisClient, type Session, type SessionsQuery } from '#client/client.ts';
import type { ServerAddress } from '#client/request.ts';
import { waitingEnds } from '#client/stream-items.ts';
import { systemClock } from '#protocol/clock.ts';
import { sumPusd, toPusd, ZERO_PUSD } from '#protocol/money.ts';
import { readClientName } from '#protocol/text/client-ref.ts';
import { nameReference } from '#protocol/text/model-reference.ts';
import { toJsonLine } from './printable-text.ts';
import {
  askServer,
  type Column,
  createTerminalStyle,
  formatAge,
  formatRoundedDollars,
  getTableWidth,
  layOutTable,
  type ServerFlags,
  type Terminal,
} from './terminal.ts';

const SESSIONS_PAGE = 200;
const SESSION_COLUMNS: readonly Column[] = [
  { title: 'session', whole: true },
  { title: 'title', least: 10 },
  { title: 'state', whole: true },
  { title: 'model', least: 14, drop: 1 },
  { title: 'workers', align: 'right', drop: 2 },
  { title: 'cost', align: 'right' },
  { title: 'active', align: 'right', drop: 3 },
];

export interface SessionsFlags extends Pick<ServerFlags, 'json'> {
  readonly limit: number;
  /** Workers' sessions too. */
  readonly workers?: boolean;
  readonly status?: SessionsQuery['status'];
  /** Only open ones whose newest turn failed. */
  readonly failed?: boolean;
}

/** Exit code: 0 also when there is none, 1 when the server could not say. With `json`, a session a line. */
export async function listSessions(terminal: Terminal, server: ServerAddress, flags: SessionsFlags): Promise<number> {
  const { stdout } = terminal;
  return askServer(terminal, server, async () => {
    const client = createMetisClient(server);
    const query: SessionsQuery = {
      include_workers: flags.workers ?? false,
      status: flags.status,
      failed: flags.failed,
    };
    const sessions: Session[] = [];
    let cursor: string | null = null;
    do {
      const limit = Math.min(SESSIONS_PAGE, flags.limit - sessions.length);
      const page = await client.listSessions({ ...query, limit, cursor: cursor ?? undefined });
      sessions.push(...page.sessions);
      cursor = page.next_cursor;
    } while (cursor !== null && sessions.length < flags.limit);
    if (flags.json) {
      for (const session of sessions) stdout.write(toJsonLine(session));
      return 0;
    }
    if (sessions.length === 0) {
      stdout.write(flags.failed ? 'no failed sessions\n' : 'no sessions\n');
      return 0;
    }
    const style = createTerminalStyle(terminal);
    const [header, rule, ...rows] = layOutTable(
      SESSION_COLUMNS,
      sessions.map(composeSessionCells),
      getTableWidth(terminal),
    );
    stdout.write(`${[style.bold(header!), style.dim(rule!), ...rows].join('\n')}\n`);
    if (cursor !== null) stdout.write(`${style.dim(`more than ${flags.limit}; --limit shows more`)}\n`);
    return 0;
  });
}

function composeSessionCells(session: Session): string[] {
  return [
    session.id,
    session.title ?? session.task ?? describeClient(session),
    formatState(session),
    nameReference(session.last_model ?? '', session.last_effort),
    formatWorkers(session),
    formatSessionCost(session),
    formatAge(systemClock.now() - Date.parse(session.updated_at)),
  ];
}

/** Its status, or what a person must know first: that it failed, how it ended, or what it waits for. */
function formatState({ status, disposition, failure, waiting_on }: Session): string {
  if (status === 'ended') return disposition === null || disposition === 'completed' ? status : disposition;
  if (failure !== null) return 'failed';
  const kinds = new Set(waitingEnds(waiting_on).map(({ kind }) => kind));
  if (kinds.has('budget')) return 'needs budget';
  if (kinds.size === 1 && kinds.has('approval')) return 'needs approval';
  return status;
}

/** Their number; while some run, `1 of 3 run`. */
function formatWorkers({ worker_count, active_worker_count }: Session): string {
  if (worker_count === 0) return '';
  if (active_worker_count === 0) return String(worker_count);
  return `${active_worker_count} of ${worker_count} run`;
}

/** What calls without a price cost is not known, and what a script answered cost nothing. */
function formatSessionCost(session: Session): string {
  const cost = sumPusd([toPusd(session.cost_so_far_usd), toPusd(session.workers_cost_usd)]);
  const shown = formatRoundedDollars(cost);
  if (session.has_simulated_calls) return `simulated ${shown}`;
  if (!session.has_unpriced_calls) return shown;
  if (cost === ZERO_PUSD) return 'unpriced';
  return `${shown} + unpriced`;
}

/** Of a session that a client keeps under a name of its own: that name, after the client's. */
function describeClient({ client, client_ref }: Session): string {
  const name = readClientName(client_ref);
  if (name === null) return client ?? '';
  if (client === null || name.startsWith(client)) return name;
  return `${client} ${name}`;
}
