// What a turn stores for workers in the background, beside the same workers in the foreground (20 §9).
import type Database from 'better-sqlite3';
import { expect, onTestFinished, test } from 'vitest';
import { startEngine, type TestEngine } from '../support/engine.ts';
import { call, delegate, planner, scenario, worker } from '../support/scenario.ts';

const EIGHT = [1, 2, 3, 4, 5, 6, 7, 8];
const METHODS = ['run', 'get', 'all', 'iterate'] as const;

/** Counts every statement of the engine's writing connection from now on. */
function countStatements(t: TestEngine): readonly string[] {
  const statements: string[] = [];
  const proto = Object.getPrototypeOf(t.db.db.prepare('SELECT 1')) as Record<string, (...values: unknown[]) => unknown>;
  for (const method of METHODS) {
    const original = proto[method]!;
    proto[method] = function (this: Database.Statement, ...values) {
      if (this.database === t.db.db) statements.push(this.source);
      return original.apply(this, values);
    };
    onTestFinished(() => {
      proto[method] = original;
    });
  }
  return statements;
}

/** One turn with eight workers. @param calls of its planner's first answer */
async function runTurn(calls: readonly object[]) {
  const t = await startEngine({
    scenario: scenario(
      planner({ tool_calls: calls }, { text: 'all read' }),
      ...EIGHT.map((n) => worker(`task ${n}.`, { text: `${n} is done` })),
    ),
  });
  const session = await t.session();
  const before = t.events.length;
  const statements = countStatements(t);
  const turn = await t.run(session, 'go');
  expect(turn).toMatchObject({ status: 'completed', output: 'all read', llm_call_count: 2, unread_inputs: 0 });
  return {
    statements: statements.length,
    commits: statements.filter((sql) => sql === 'COMMIT').length,
    events: t.events.length - before,
    calls: t.adapter.requests.length,
  };
}

// Promise 20.19: eight workers in the background take as many model calls and commits as eight in the foreground; beside the call that waits, each costs its delivery.
test('eight workers in the background store beside eight in the foreground their deliveries and one wait', async () => {
  const wait = call('workers', { action: 'wait', for: 'all' });
  const foreground = await runTurn(EIGHT.map((n) => delegate(`task ${n}.`)));
  const background = await runTurn([...EIGHT.map((n) => delegate(`task ${n}.`, { background: true })), wait]);
  expect(background.calls).toBe(foreground.calls);
  expect(background.commits).toBe(foreground.commits);
  // One `delegate.delivered` each; the wait was called and has completed.
  expect(background.events - foreground.events).toBe(EIGHT.length + 2);
  // Of each: its row, whose reading is two changes, its event, and its session as it is read.
  expect(background.statements - foreground.statements).toBeLessThanOrEqual(5 * EIGHT.length + 20);
});
