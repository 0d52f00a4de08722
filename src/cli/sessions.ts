// `metis sessions`: what there is on the server, newest first (17 §2).
import { createMetisClient, type Session, type SessionsQuery } from '#client/client.ts';
import type { ServerAddress } from '#client/request.ts';
import { systemClock } from '#protocol/clock.ts';
import { sumPusd, toPusd } from '#protocol/money.ts';
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
  toJsonLine,
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
}

/** Exit code: 0 also when there is none, 1 when the server could not say. With `json`, a session a line. */
export async function listSessions(terminal: Terminal, server: ServerAddress, flags: SessionsFlags): Promise<number> {
  const { stdout } = terminal;
  return askServer(terminal, server, async () => {
    const client = createMetisClient(server);
    const query: SessionsQuery = { include_workers: flags.workers ?? false, status: flags.status };
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
      stdout.write('no sessions\n');
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
  const { worker_count, active_worker_count } = session;
  return [
    session.id,
    session.title ?? session.task ?? describeClient(session),
    session.status,
    session.last_model ?? '',
    worker_count === 0 ? '' : `${active_worker_count}/${worker_count}`,
    formatRoundedDollars(sumPusd([toPusd(session.cost_so_far_usd), toPusd(session.workers_cost_usd)])),
    formatAge(systemClock.now() - Date.parse(session.updated_at)),
  ];
}

/** Of a session that a client keeps under a name of its own: that name, after the client's. */
function describeClient({ client, client_ref }: Session): string {
  if (client_ref === null) return client ?? '';
  return client === null || client_ref.startsWith(client) ? client_ref : `${client} ${client_ref}`;
}
