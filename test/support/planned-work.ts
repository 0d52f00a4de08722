// A turn's worth of work whose calls can be told apart: a command that leaves a line, two workers of two calls, an answer.
import type { FakeCall, FakeMessage } from './fake-provider.ts';
import type { Nodes } from './nodes.ts';
import { until } from './until.ts';

/** The ledger's row of a call has so many input tokens above this as the number of the ask that it paid for. */
const INPUT_TOKENS = 1000;
export const LOG = 'log.txt';
const WORKERS = ['left', 'right'];
/** Of the turn itself and of both workers. */
export const CALLS_A_TURN = 3 + 2 * WORKERS.length;

type Json = Readonly<Record<string, unknown>>;

export interface Ask {
  /** `<turn> <planner or worker's name> <answers so far>`, read off the request alone. */
  readonly key: string;
  /** From 1. */
  readonly number: number;
}

export interface PlannedWork {
  /** In the order they came. */
  readonly asks: readonly Ask[];
  answer(call: FakeCall): Promise<FakeMessage>;
}

export const pause = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms));

/** The message that has turn `name` done: a word without spaces. */
export const message = (name: string): string => `turn ${name}`;

/**
 * @param latency before an answer, ms
 * @param meanwhile is waited for as well
 * @param plan what the models answer, in place of the above
 */
export function plannedWork(
  latency: () => number,
  meanwhile: (ask: Ask) => Promise<void> | void = () => {},
  plan: (key: string) => FakeMessage = answerTo,
): PlannedWork {
  const asks: Ask[] = [];
  return {
    asks,
    async answer(call) {
      const ask = { key: keyOf(call), number: call.number };
      asks.push(ask);
      await meanwhile(ask);
      await pause(latency());
      return { ...plan(ask.key), usage: { input: INPUT_TOKENS + ask.number, output: 7 } };
    },
  };
}

function keyOf(call: FakeCall): string {
  const said = (call.body.messages as readonly Json[]).filter((m) => m.role !== 'system');
  const isTurn = (m: Json) => m.role === 'user' && /turn \S/.test(JSON.stringify(m.content));
  const job = /job (\S+) (\S+)/.exec(call.system);
  const begun = job === null ? said.findLastIndex(isTurn) : -1;
  const answers = said.slice(begun + 1).filter((m) => m.role === 'assistant').length;
  if (job !== null) return `${job[1]} ${job[2]} ${answers}`;
  return `${/turn ([\w.-]+)/.exec(JSON.stringify(said[begun]))![1]} planner ${answers}`;
}

function answerTo(key: string): FakeMessage {
  const [turn, who, answers] = key.split(' ') as [string, string, string];
  if (who !== 'planner') {
    return answers === '0' ? { tool_calls: [{ name: 'list_files', input: { path: '.' } }] } : { text: `${who} done` };
  }
  if (answers === '0') return { tool_calls: [{ name: 'shell', input: { command: `echo ${turn} >> ${LOG}` } }] };
  if (answers === '1') {
    const job = (name: string) => ({ name: 'delegate', input: { tier: 'fast', task: `job ${turn} ${name}` } });
    return { tool_calls: WORKERS.map(job) };
  }
  return { text: `${turn} done` };
}

/** What the database holds of the work, to be held against what was asked. */
export interface Account {
  /** Keys of calls that are in the ledger more than once. */
  readonly paidTwice: readonly string[];
  /** Asks whose answer is not in the ledger. */
  readonly unpaid: number;
  readonly paid: number;
  /** `status stop_reason` of each turn of a planner, with its number. */
  readonly turns: Readonly<Record<string, number>>;
  /** Ids of turns without exactly one terminal event. */
  readonly unended: readonly string[];
  /** Tool calls with more than one worker, or workers without an end. */
  readonly strayWorkers: readonly string[];
}

/** Resolves when no turn is open and no tree is to be taken up; throws after `seconds`. */
export function allEnded(nodes: Nodes, seconds: number): Promise<unknown> {
  return until(async () => {
    const open = await nodes.rows(
      'SELECT 1 FROM turns WHERE ended_at IS NULL UNION ALL SELECT 1 FROM trees WHERE wanted',
    );
    return open.length === 0;
  }, seconds);
}

export async function accountOf(nodes: Nodes, { asks }: PlannedWork): Promise<Account> {
  const rows = await nodes.rows('SELECT input_tokens AS n FROM llm_calls');
  const keys = new Map(asks.map((ask) => [ask.number, ask.key]));
  const paid = rows.map(({ n }) => keys.get(Number(n) - INPUT_TOKENS) ?? `nobody asked for ${n}`);
  const turns = await nodes.rows(
    `SELECT t.status || ' ' || coalesce(t.stop_reason, '') AS how, count(*) AS n
     FROM turns t JOIN sessions s ON s.id = t.session_id WHERE s.is_worker = 0 GROUP BY 1`,
  );
  const unended = await nodes.rows(
    `SELECT t.id FROM turns t LEFT JOIN events e ON e.turn_id = t.id
       AND e.type IN ('turn.completed', 'turn.failed', 'turn.cancelled')
     GROUP BY t.id HAVING count(e.id) <> 1`,
  );
  const stray = await nodes.rows(
    `SELECT parent_tool_use_id AS id FROM sessions WHERE is_worker = 1
     GROUP BY 1 HAVING count(*) > 1 OR count(ended_at) <> count(*)`,
  );
  return {
    paidTwice: paid.filter((key, i) => paid.indexOf(key) !== i),
    unpaid: asks.length - paid.length,
    paid: paid.length,
    turns: Object.fromEntries(turns.map(({ how, n }) => [how!.trim(), Number(n)])),
    unended: unended.map(({ id }) => id!),
    strayWorkers: stray.map(({ id }) => id!),
  };
}
