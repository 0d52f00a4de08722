// What a turn says to SQLite, which its speed stands on (00 §3).
import Database from 'better-sqlite3';
import { expect, onTestFinished, test, vi } from 'vitest';
import { startEngine } from '../../support/engine.ts';
import { planner, scenario } from '../../support/scenario.ts';

/** The texts of statements that run from now on. */
function listenToStatements(): string[] {
  const said: string[] = [];
  const real = Database.prototype.prepare;
  const prepare = vi.spyOn(Database.prototype, 'prepare').mockImplementation(function (this: Database.Database, text) {
    const statement = real.call(this, text);
    for (const name of ['run', 'get', 'all'] as const) {
      const run = statement[name].bind(statement) as (...values: unknown[]) => unknown;
      const spoken = (...values: unknown[]) => {
        said.push(text.replaceAll(/\s+/g, ' ').trim());
        return run(...values);
      };
      Object.defineProperty(statement, name, { value: spoken });
    }
    return statement;
  });
  onTestFinished(() => prepare.mockRestore());
  return said;
}

const TURNS = 5;
/** Six begin it and eleven end it, of which the call and its sums are five. */
const MOST_A_TURN = 17;

test('a plain turn is two transactions of few statements, and reads nothing', async () => {
  const said = listenToStatements();
  const answers = Array.from({ length: TURNS + 1 }, () => ({
    text: 'done',
    usage: { input_tokens: 9, output_tokens: 1 },
  }));
  const t = await startEngine({ scenario: scenario(planner(...answers)) });
  const session = await t.session();
  const turn = async () => {
    const id = await t.submit(session, 'go');
    await t.event('turn.completed', (event) => event.turn_id === id);
  };
  await turn();
  said.length = 0;
  for (let i = 0; i < TURNS; i++) await turn();
  expect(said.filter((text) => text === 'COMMIT')).toHaveLength(2 * TURNS);
  expect(said.filter((text) => text.startsWith('SELECT'))).toEqual([]);
  expect(said.length).toBeLessThanOrEqual(MOST_A_TURN * TURNS);
  for (const text of new Set(said)) {
    if (!/^(INSERT|UPDATE)/.test(text) || text.includes('RETURNING')) continue;
    const steps = t.db.reader.prepare<unknown[], { opcode: string }>(`EXPLAIN ${text}`);
    const values = text.match(/\?/g)?.map(() => null) ?? [];
    expect(
      steps.all(...values).map((step) => step.opcode),
      text,
    ).not.toContain('OpenEphemeral');
  }
});
