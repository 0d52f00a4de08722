// A planner's turn under its session's lock: its deadline, and its return once its tree has money again.
import type { SessionRecord } from '../../domain/session.ts';
import { Cancelled } from '../../kernel/abort.ts';
import { AppError } from '../../kernel/errors.ts';
import type { SessionId } from '../../kernel/ids.ts';
import { exhaustedLimit } from '../money/limits.ts';
import { resumeTopLevel } from '../resume-turn.ts';
import type { Engine } from '../state/engine.ts';
import { cancelScope } from '../state/session-lock.ts';
import type { TurnEnd, TurnRun } from '../state/turn-run.ts';
import type { ToolResults } from '../tool-call/results.ts';
import { runTurn } from './run.ts';

/** Runs the turn under the lock that the caller has reserved. */
export function startTopLevel(engine: Engine, run: TurnRun, known?: ToolResults): void {
  const { scope, session } = run;
  let end: TurnEnd | null = null;
  const turn = engine.locks.start(session.id, run.turn.id, scope, async () => {
    const seconds = engine.config.turn.timeout_seconds;
    const timer =
      seconds === null ? null : engine.clock.after(seconds * 1000, () => cancelScope(scope, new Cancelled('timeout')));
    try {
      end = await runTurn(engine, run, known);
    } finally {
      timer?.cancel();
    }
  });
  // The limit may have been raised while the last of the tree was still coming to its stop.
  void turn.done.then(() => (end?.status === 'interrupted' ? resumeIfPaid(engine, session.id) : undefined));
}

/** Goes on with a turn that waits for money, unless its tree still has to wait. Never rejects. */
export async function resumeIfPaid(engine: Engine, sessionId: SessionId): Promise<void> {
  if (engine.draining.value || engine.budget.paused.has(sessionId)) return;
  try {
    const turn = await engine.store.turns.open(sessionId);
    if (turn?.status !== 'interrupted' || turn.interrupted_reason !== 'budget') return;
    const session = await engine.store.sessions.record(sessionId);
    if (session) await resumeTopLevel(engine, session, turn);
  } catch (err) {
    engine.log.error({ err, session_id: sessionId }, 'a turn that waited for money could not be resumed');
  }
}

/** Throws `budget_exceeded` with the four amounts when a limit lets nothing further begin (14 §3). */
export async function requireBudget(engine: Engine, session: SessionRecord): Promise<void> {
  const refusal = await exhaustedLimit(engine, session);
  if (!refusal) return;
  const { scope, limit_usd, spent_usd, reserved_usd } = refusal;
  throw new AppError(
    'budget_exceeded',
    `the ${scope} limit of ${limit_usd} USD is reached (${spent_usd} USD spent); raise it to go on`,
    { scope, limit_usd, spent_usd, reserved_usd },
  );
}
