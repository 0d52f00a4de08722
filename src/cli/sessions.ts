// `metis sessions`: what there is on the server, newest first (17 §2).
import { createMetisClient, type Session, type SessionsQuery } from '../client/client.ts';
import type { ServerAddress } from '../client/request.ts';
import { systemClock } from '../kernel/clock.ts';
import { sumPusd, toPusd } from '../kernel/money.ts';
import { roundedUsd } from './live-tree.ts';
import { printable } from './style.ts';
import { type Column, tableLines } from './table.ts';
import { askServer, type ServerFlags, styleOf, type Terminal, widthOf } from './terminal.ts';

const PAGE = 200;
const COLUMNS = [
  { title: 'session', whole: true },
  { title: 'title' },
  { title: 'state' },
  { title: 'model' },
  { title: 'workers', align: 'right' },
  { title: 'cost', align: 'right' },
  { title: 'active', align: 'right' },
] as const;
/** Narrower than this the model gives its place to the title. */
const WIDE = 100;

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
      const limit = Math.min(PAGE, flags.limit - sessions.length);
      const page = await client.listSessions({ ...query, limit, cursor: cursor ?? undefined });
      sessions.push(...page.sessions);
      cursor = page.next_cursor;
    } while (cursor !== null && sessions.length < flags.limit);
    if (flags.json) {
      for (const session of sessions) stdout.write(`${JSON.stringify(session)}\n`);
      return 0;
    }
    if (sessions.length === 0) {
      stdout.write('no sessions\n');
      return 0;
    }
    const style = styleOf(terminal);
    const width = widthOf(terminal);
    const shown = COLUMNS.map((column) => width >= WIDE || column.title !== 'model');
    const narrow = <T>(row: readonly T[]) => row.filter((_, i) => shown[i]);
    const table = tableLines(narrow<Column>(COLUMNS), sessions.map(cells).map(narrow<string>), width);
    const [header, rule, ...rows] = table;
    stdout.write(`${[style.bold(header!), style.dim(rule!), ...rows].join('\n')}\n`);
    if (cursor !== null) stdout.write(`${style.dim(`more than ${flags.limit}; --limit shows more`)}\n`);
    return 0;
  });
}

function cells(session: Session): string[] {
  const { worker_count, active_worker_count } = session;
  return [
    session.id,
    printable(session.title ?? session.task ?? ''),
    session.status,
    printable(session.last_model ?? ''),
    worker_count === 0 ? '' : `${active_worker_count}/${worker_count}`,
    `$${roundedUsd(sumPusd([toPusd(session.cost_so_far_usd), toPusd(session.workers_cost_usd)]))}`,
    age(systemClock.now() - Date.parse(session.updated_at)),
  ];
}

/** `42s`, `7m`, `3h`, `12d`: the largest unit that is not 0. */
function age(ms: number): string {
  const seconds = Math.max(0, Math.floor(ms / 1000));
  if (seconds < 60) return `${seconds}s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)}m`;
  if (seconds < 86_400) return `${Math.floor(seconds / 3600)}h`;
  return `${Math.floor(seconds / 86_400)}d`;
}
