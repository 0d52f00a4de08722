// A tree that another node may take: what runs of it here stops (16 §4.4).
import { once } from 'node:events';
import { expect, test } from 'vitest';
import { loseTree } from '#core/engine/tree/lost-trees.ts';
import { createScope } from '#protocol/abort.ts';
import { startEngine } from '../support/engine.ts';
import { scenario } from '../support/scenario.ts';

test('a turn that starts while its tree is being dropped is stopped, and the tree is free', async () => {
  const t = await startEngine({ scenario: scenario() });
  const { id } = await t.session();
  const { locks, ids } = t.engine;
  const turn_id = ids.turn();
  expect(locks.tryTake(id, turn_id)).toEqual({ held: false });
  const lost = loseTree(t.engine, id, 0);
  const scope = createScope();
  // Its admission was stored before the tree was lost.
  locks.start({ id, root_session_id: id }, { turn_id, scope, conclusion: createScope() }, async () => {
    await once(scope.signal, 'abort');
  });
  await lost;
  expect([scope.signal.aborted, locks.isHeld(id)]).toEqual([true, false]);
});
