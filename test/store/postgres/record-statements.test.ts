// Rows of several trees are inserted together, and each tree keeps the order of its statements (16 §3.3).
import { expect, test } from 'vitest';
import { createRecorder } from '#store/postgres/write/record-statements.ts';
import { insertRow } from '#store/write/transaction.ts';

const insertTurn = insertRow('turns', ['id', 'session_id']);
const insertMessage = insertRow('messages', ['id', 'turn_id'], 'ON CONFLICT (id) DO NOTHING');
const refuse = () => {
  throw new Error('refused');
};

test('the statements of each tree keep their order, and rows for one table are one statement', () => {
  const { beginPart, afterParts, listStatements, needsAnswer } = createRecorder();
  for (const tree of ['a', 'b']) {
    const tx = beginPart();
    tx.change('FENCE', [tree], refuse);
    insertTurn(tx, { id: `turn ${tree}`, session_id: tree });
    insertMessage(tx, { turn_id: `turn ${tree}`, id: `message ${tree}` });
  }
  const ending = beginPart();
  ending.change('FENCE', ['c'], refuse);
  insertMessage(ending, { id: 'message c', turn_id: 'turn c' });
  ending.change('END', ['c'], refuse);
  insertMessage(afterParts, { id: 'last', turn_id: 'turn c' });
  afterParts.run('SUM', []);
  expect(needsAnswer()).toBe(false);
  expect(listStatements().map(({ sql, values, isChange }) => [sql.trim(), values, isChange])).toEqual([
    ['FENCE', ['a'], true],
    ['FENCE', ['b'], true],
    ['FENCE', ['c'], true],
    ['INSERT INTO turns (id, session_id) VALUES (?, ?), (?, ?)', ['turn a', 'a', 'turn b', 'b'], false],
    [
      'INSERT INTO messages (id, turn_id) VALUES (?, ?), (?, ?), (?, ?) ON CONFLICT (id) DO NOTHING',
      ['message c', 'turn c', 'message a', 'turn a', 'message b', 'turn b'],
      false,
    ],
    ['END', ['c'], true],
    ['INSERT INTO messages (id, turn_id) VALUES (?, ?) ON CONFLICT (id) DO NOTHING', ['last', 'turn c'], false],
    ['SUM', [], false],
  ]);
});

test('a statement takes eight rows at most', () => {
  const { beginPart, listStatements } = createRecorder();
  for (let i = 0; i < 19; i++) insertTurn(beginPart(), { id: `t${i}`, session_id: 's' });
  expect(listStatements().map(({ values }) => (values as readonly unknown[]).length / 2)).toEqual([8, 8, 3]);
});

test('a row with a check needs its answer', () => {
  const { beginPart, needsAnswer } = createRecorder();
  insertTurn(beginPart(), { id: 't', session_id: 's' }, refuse);
  expect(needsAnswer()).toBe(true);
});
