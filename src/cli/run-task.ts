// `metis run`: one turn, watched to its end; the answer on stdout, everything else on stderr (17 §2).
import {
  ApiError,
  createMetisClient,
  type MetisClient,
  type NewSession,
  type Session,
  type Turn,
} from '#client/client.ts';
import type { ServerAddress } from '#client/request.ts';
import { type Waiting, waitingEnds, wordsFor } from '#client/stream-items.ts';
import { type Clock, systemClock, type Timer } from '#protocol/clock.ts';
import { fromPusd, sumPusd, toPusd, ZERO_PUSD } from '#protocol/money.ts';
import { createApprovals, type Desk } from './approvals.ts';
import { createDenials } from './denials.ts';
import { followSession, toLoggedEvent } from './events.ts';
import { startWatch, type Watch } from './live-tree.ts';
import { toJsonLine, toPrintable, toPrintableText } from './printable-text.ts';
import { createSessionTree } from './session-tree.ts';
import {
  askServer,
  createTerminalStyle,
  describeRefusal,
  formatAge,
  formatDollars,
  groupDigits,
  nameWorkers,
  printMessage,
  type ServerFlags,
  type Terminal,
} from './terminal.ts';

const ASK_AGAIN_MS = 2000;
const SHOWN = 3;
const KEY_ADVICE =
  'rejected the key or account of the server; correct the key, restart the server, and check it with: metis doctor --online';
export interface WaitingLine {
  /** '' when nothing is waited for. */
  line(): string;
  /** Something happened in a session: what was known of it is over. */
  clear(sessionId: string): void;
  stop(): void;
}

/** Asks every 2 s; what the server does not answer is not shown. `who` names a session in a word. */
export function watchWaiting(
  client: MetisClient,
  sessionId: string,
  who: (sessionId: string) => string,
  clock: Clock = systemClock,
): WaitingLine {
  let waiting: readonly Waiting[] = [];
  let timer: Timer | null = null;
  const stopped = new AbortController();
  const look = async () => {
    try {
      waiting = (await client.getSession(sessionId, { signal: stopped.signal })).waiting_on;
    } catch {
      waiting = [];
    }
    if (!stopped.signal.aborted) timer = clock.after(ASK_AGAIN_MS, () => void look());
  };
  timer = clock.after(ASK_AGAIN_MS, () => void look());
  return {
    line() {
      const ends = waitingEnds(waiting);
      const parts = ends
        .slice(0, SHOWN)
        .map(
          ({ kind, session_id, since }) =>
            `${wordsFor(kind)} (${who(session_id)}, ${formatAge(clock.now() - Date.parse(since))})`,
        );
      if (parts.length === 0) return '';
      const line = `waits for ${parts.join(', ')}`;
      if (ends.length <= SHOWN) return line;
      return `${line} and ${ends.length - SHOWN} more`;
    },
    clear(id) {
      waiting = waiting.filter(({ session_id }) => session_id !== id);
    },
    stop() {
      stopped.abort();
      timer?.cancel();
    },
  };
}

export interface RunFlags extends Pick<ServerFlags, 'json'> {
  /** Absolute. */
  readonly workspace: string;
  readonly model?: string;
  /** The named worker that does it. */
  readonly worker?: string;
  /** Decimal US dollars. */
  readonly budget?: string;
  /** The same under another name. */
  readonly maxCost?: string;
  readonly approve?: boolean;
  /** Record what the session needs to run again (21 §3). */
  readonly case?: boolean;
}

export interface RunTerminal extends Terminal {
  readonly stdin: NodeJS.ReadStream;
  readonly stderr: Desk['output'];
  /** Resolves when the run is not wanted any more. */
  readonly interrupted: Promise<unknown>;
  /** Ctrl-C where the terminal hands it over as a key. */
  readonly interrupt: () => void;
  /** Calls `work` at each Ctrl-\; the returned function ends that. */
  readonly onQuitKey: (work: () => void) => () => void;
}

export const EXIT = { completed: 0, failed: 1, usage: 2, cancelled: 3, budget: 4, denied: 5 } as const;
const ENDS: readonly string[] = ['turn.completed', 'turn.failed', 'turn.cancelled'];

/** Exit code: see `EXIT`. With `json`, every stored event of the tree on a line of stdout instead of the answer. */
export async function runTask(
  terminal: RunTerminal,
  server: ServerAddress,
  task: string,
  flags: RunFlags,
): Promise<number> {
  return askServer(terminal, server, async () => {
    const client = createMetisClient(server);
    let session: Session;
    try {
      session = await client.createSession(composeSession(terminal, flags));
    } catch (error) {
      if (!(error instanceof ApiError) || error.status === 401 || error.status >= 500) throw error;
      // The server does not offer what the flags request.
      printMessage(terminal.stderr, describeRefusal(error));
      return EXIT.usage;
    }
    const limit = flags.budget ?? flags.maxCost ?? null;
    try {
      if (limit !== null) await warnAboutForecast(terminal, client, session, { task, limit });
      return await runTurn(terminal, client, session, { task, json: flags.json ?? false });
    } catch (error) {
      if (!(error instanceof ApiError)) throw error;
      // The refusal is reported even if this fails.
      await forgetEmpty(client, session.id).catch(() => {});
      if (error.code !== 'budget_exceeded') throw error;
      printMessage(terminal.stderr, error.message);
      return EXIT.budget;
    }
  });
}

/** Before anything is spent: earlier tasks like this one have cost more than the limit (21 §1). */
async function warnAboutForecast(
  { stderr }: Pick<Terminal, 'stderr'>,
  client: MetisClient,
  session: Session,
  { task, limit }: { readonly task: string; readonly limit: string },
): Promise<void> {
  const history = await client.estimateTurn(session.id, { content: task }).then(
    (estimate) => estimate.history,
    // The turn is refused for the same reason, and reports it.
    () => null,
  );
  if (history === null || toPusd(history.p90_usd) <= toPusd(limit)) return;
  const place = history.basis === 'workspace' ? 'in this workspace' : 'on this server';
  printMessage(
    stderr,
    `the limit of ${formatDollars(limit)} may be too small: of ${history.n} tasks like this one ${place}, ` +
      `half cost more than ${formatDollars(history.p50_usd)} and one in ten more than ${formatDollars(history.p90_usd)}`,
  );
}

/** A session whose only message was refused is of no use. */
async function forgetEmpty(client: MetisClient, id: string): Promise<void> {
  const { turn_count, status } = await client.getSession(id);
  if (turn_count === 0 && status === 'idle') await client.endSession(id, { purge: true });
}

function composeSession({ stdin, stderr }: RunTerminal, flags: RunFlags): NewSession {
  // At a terminal the server's own rule applies.
  let approval_mode: NewSession['approval_mode'] = null;
  if (flags.approve) approval_mode = 'approve_all';
  else if (stdin.isTTY !== true || stderr.isTTY !== true) approval_mode = 'strict';
  return {
    workspace_path: flags.workspace,
    initial_active_model: flags.model ?? null,
    worker: flags.worker ?? null,
    max_cost_usd: flags.budget ?? flags.maxCost ?? null,
    on_reached: 'stop',
    approval_mode,
    record_case: flags.case ?? false,
  };
}

async function runTurn(
  terminal: RunTerminal,
  client: MetisClient,
  session: Session,
  { task, json }: { readonly task: string; readonly json: boolean },
): Promise<number> {
  const { stdout, stderr, interrupted } = terminal;
  const style = createTerminalStyle(terminal, stderr);
  const tree = createSessionTree(session.id, session);
  const run: RunState = { turnId: null, turn: null, overrun: null, note: '' };
  const denials = createDenials();
  const who = (id: string) => tree.nodes.find((node) => node.session_id === id)?.label ?? 'a worker';
  const waiting = stderr.isTTY === true ? watchWaiting(client, session.id, who) : null;
  const watch = startWatch(tree, stderr, style, () => run.note || (waiting?.line() ?? ''));
  const { stdin, interrupt } = terminal;
  const approvals = createApprovals({ client, input: stdin, output: stderr, style, who, hold: watch.hold, interrupt });
  const leaving = new AbortController();
  void interrupted.then(() => {
    if (run.turnId === null) leaving.abort();
    else void cancelRun(client, session.id, run.turnId, watch);
  });
  const ignoreQuitKey = terminal.onQuitKey(() => {
    if (run.turnId !== null) void concludeRun(client, session.id, run.turnId, watch);
  });
  const note = (text: string) => {
    run.note = text;
    if (text !== '' && stderr.isTTY !== true) watch.say(text);
  };
  try {
    const events = followSession(client, session.id, {
      include_worker_sessions: true,
      signal: leaving.signal,
      onConnection: (yes) => {
        if (!yes) note('the server does not answer; trying again');
        else if (run.note !== '') void checkInterrupted(client, session.id, run, note);
      },
      // A later snapshot means that events are gone, the turn's end perhaps among them.
      onSnapshot: async () => {
        if (run.turnId === null) run.turnId = (await client.submitTurn(session.id, { content: task })).turn_id;
        else run.turn = ifEnded(await client.getTurn(session.id, run.turnId));
        if (run.turn !== null) leaving.abort();
      },
    });
    for await (const event of events) {
      watch.apply(event);
      if (event.transient) continue;
      waiting?.clear(event.session_id);
      if (json) stdout.write(toJsonLine(toLoggedEvent(event)));
      denials.apply(event, who(event.session_id));
      if (event.type === 'routing.policy_invalid') watch.say(describeBrokenRules(event.payload));
      if (event.type === 'tool.confirmation_requested' && session.approval_mode === 'interactive')
        approvals.add(event.payload.confirmation_request_id);
      else if (event.type === 'tool.confirmation_resolved') approvals.withdraw(event.payload.confirmation_request_id);
      else if (event.type === 'budget.exceeded') run.overrun = event.payload;
      else if (event.type === 'turn.resumed') note('');
      if (event.turn_id === run.turnId && ENDS.includes(event.type)) break;
    }
    if (run.turnId !== null) run.turn ??= await client.getTurn(session.id, run.turnId);
  } finally {
    ignoreQuitKey();
    waiting?.stop();
    await approvals.close();
    watch.stop();
  }
  if (run.turn === null) return EXIT.cancelled;
  const code = await reportRun(terminal, client, { ...run, turn: run.turn, json });
  for (const line of denials.describe()) printMessage(stderr, line);
  if (code === EXIT.completed && denials.count() > 0) return EXIT.denied;
  return code;
}

/** A routing file that was read with errors: the turn went on without its rules. */
function describeBrokenRules(fault: {
  readonly policy_path: string;
  readonly errors: readonly string[];
  readonly using_last_known_good: boolean;
}): string {
  const consequence = fault.using_last_known_good ? 'its last valid rules apply' : 'none of its rules apply';
  return `metis: ${toPrintable(`${fault.policy_path} is invalid, so ${consequence}: ${fault.errors.join('; ')}`)}`;
}

interface RunState {
  turnId: string | null;
  /** Once it has ended. */
  turn: Turn | null;
  overrun: Overrun | null;
  /** What the person should know while it lasts. */
  note: string;
}

/** After a time without the server: does the turn go on by itself? */
async function checkInterrupted(
  client: MetisClient,
  sessionId: string,
  { turnId }: RunState,
  note: (text: string) => void,
): Promise<void> {
  note('');
  if (turnId === null) return;
  try {
    const { status } = await client.getTurn(sessionId, turnId);
    if (status === 'interrupted') note('the turn is interrupted; resume it in the dashboard');
  } catch {
    // Away again: the stream reports it.
  }
}

function ifEnded(turn: Turn): Turn | null {
  if (turn.ended_at === null) return null;
  return turn;
}

async function cancelRun(client: MetisClient, sessionId: string, turnId: string, watch: Watch): Promise<void> {
  watch.say('cancelling; Ctrl-C once more leaves at once');
  try {
    await client.cancelTurn(sessionId, turnId, { reason: 'interrupted at the terminal' });
  } catch (error) {
    // It may have ended in the meantime; then its end is on the way.
    if (!(error instanceof ApiError)) watch.say('the server does not answer; Ctrl-C leaves');
    else if (error.code !== 'turn_already_completed') watch.say(`metis: ${toPrintable(error.message)}`);
  }
}

async function concludeRun(client: MetisClient, sessionId: string, turnId: string, watch: Watch): Promise<void> {
  watch.say('concluding: no further tool starts, and the model answers with what it has');
  try {
    await client.concludeTurn(sessionId, turnId);
  } catch (error) {
    if (!(error instanceof ApiError)) watch.say('the server does not answer; Ctrl-\\ tries again');
    else if (error.code !== 'turn_not_running') watch.say(`metis: ${toPrintable(error.message)}`);
  }
}

/** A model's words may be those of a file it read: a pipe gets them to the byte, a terminal without what it would act on. */
function writeAnswer(stdout: Terminal['stdout'], output: NonNullable<Turn['output']>): void {
  if (typeof output !== 'string') stdout.write(toJsonLine(output));
  else if (stdout.isTTY === true) stdout.write(`${toPrintableText(output.trimEnd())}\n`);
  else stdout.write(`${output.trimEnd()}\n`);
}

interface Overrun {
  readonly scope: string;
  readonly limit_usd: string;
  readonly spent_usd: string;
  readonly needed_usd: string;
}

/** The least budget that the refused call fits in; other limits are not this command's. */
function suggestBudget({ scope, spent_usd, needed_usd }: Overrun): string {
  if (scope !== 'session') return '';
  return `; --budget ${fromPusd(sumPusd([toPusd(spent_usd), toPusd(needed_usd)]))} would allow it`;
}

/** The session, and what it and its workers cost. */
function summarizeCost(session: Session): string {
  const { id, cost_so_far_usd, workers_cost_usd, worker_count } = session;
  const total = sumPusd([toPusd(cost_so_far_usd), toPusd(workers_cost_usd)]);
  const parts = [`${id}: ${formatDollars(fromPusd(total))}`];
  if (session.has_unpriced_calls && total === ZERO_PUSD) parts[0] = `${id}: unpriced`;
  else if (session.has_unpriced_calls) parts[0] += ' and calls without a price';
  if (worker_count > 0)
    parts.push(`${formatDollars(workers_cost_usd)} of it by ${groupDigits(worker_count)} ${nameWorkers(worker_count)}`);
  if (session.has_simulated_calls) parts.push('simulated, at example prices');
  return parts.join(', ');
}

/** What the turn ended with; its exit code. */
async function reportRun(
  terminal: RunTerminal,
  client: MetisClient,
  { turn, overrun, json }: Pick<RunState, 'overrun'> & { readonly turn: Turn; readonly json: boolean },
): Promise<number> {
  const { stdout, stderr } = terminal;
  if (!json && turn.status === 'completed' && turn.output !== null) writeAnswer(stdout, turn.output);
  const style = createTerminalStyle(terminal, stderr);
  stderr.write(`${style.dim(toPrintable(summarizeCost(await client.getSession(turn.session_id))))}\n`);
  const say = (text: string) => printMessage(stderr, text);
  if (turn.status === 'cancelled') {
    say(`cancelled: ${turn.cancel_reason}`);
    return EXIT.cancelled;
  }
  if (turn.status !== 'completed') {
    say(`the turn failed: ${turn.error_message ?? turn.error_code ?? turn.status}`);
    if (turn.error_class === 'auth') say(`${turn.provider ?? 'the provider'} ${KEY_ADVICE}`);
    return EXIT.failed;
  }
  if (turn.stop_reason === 'budget_exceeded') {
    if (overrun === null) say('the budget is too small for the next model call');
    else
      say(
        `the budget is too small: ${formatDollars(overrun.spent_usd)} of ${formatDollars(overrun.limit_usd)} spent ` +
          `(limit of the ${overrun.scope}), and the next model call may cost ${formatDollars(overrun.needed_usd)}${suggestBudget(overrun)}`,
      );
    return EXIT.budget;
  }
  if (turn.stop_reason === 'max_tokens') say('the answer was cut off at turn.max_output_tokens');
  return EXIT.completed;
}
