// What a turn says to SQLite, which its speed stands on (00 §3).
import Database from 'better-sqlite3';
import { expect, onTestFinished, test, vi } from 'vitest';
import { startEngine } from '../../support/engine.ts';
import { scenario } from '../../support/scenario.ts';

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
  const respond = { text: 'done', usage: { input_tokens: 9, output_tokens: 1 } };
  const answers = Array.from({ length: TURNS + 1 }, (_, i) => ({ match: { turn: i + 1 }, respond }));
  const t = await startEngine({ scenario: scenario(answers) });
  const session = await t.session();
  const statements: string[] = [];
  for (let i = 0; i <= TURNS; i++) {
    said.length = 0;
    expect(await t.ended(await t.submit(session, 'go'))).toMatchObject({ status: 'completed' });
    // What is behind the last commit reads the turn for this test. The first turn is the first of its session.
    if (i > 0) statements.push(...said.slice(0, said.lastIndexOf('COMMIT') + 1));
  }
  expect(statements.filter((text) => text === 'COMMIT')).toHaveLength(2 * TURNS);
  expect(statements.filter((text) => text.startsWith('SELECT'))).toEqual([]);
  expect(statements.length).toBeLessThanOrEqual(MOST_A_TURN * TURNS);
  for (const text of new Set(statements)) {
    if (!/^(INSERT|UPDATE)/.test(text) || text.includes('RETURNING')) continue;
    const steps = t.db.reader.prepare<unknown[], { opcode: string }>(`EXPLAIN ${text}`);
    const values = text.match(/\?/g)?.map(() => null) ?? [];
    expect(
      steps.all(...values).map((step) => step.opcode),
      text,
    ).not.toContain('OpenEphemeral');
  }
});
