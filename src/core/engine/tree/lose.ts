// A tree that another node may take: what runs of it here stops and stores nothing, and nothing of it is remembered (16 §4.4).
import { TreeLost } from '#protocol/batch-fault.ts';
import type { SessionId } from '#protocol/ids.ts';
import { forget } from '../money/limits.ts';
import type { Engine } from '../state/engine.ts';
import { callsOfTree, dropDecisions } from '../state/gateway-memory.ts';

/**
 * Resolves when nothing of it runs any more.
 * @param patienceMs after which tools that do not end by themselves are killed
 */
export async function loseTree(engine: Engine, root: SessionId, patienceMs: number): Promise<void> {
  const lost = new TreeLost(root, patienceMs);
  const work = () => [
    ...engine.locks.active().filter((turn) => turn.root_session_id === root),
    ...engine.outside.ofTree(root),
    ...callsOfTree(engine.gateway, root),
  ];
  for (let left = work(); left.length > 0; left = work()) {
    for (const { scope } of left) if (!scope.signal.aborted) scope.abort(lost);
    await Promise.all(left.map(({ done }) => done));
  }
  // What is being admitted, resumed or ended finds that nothing can be stored.
  while (engine.locks.isHeld(root)) await engine.locks.decided(root);
  forget(engine, 'session', root);
  dropDecisions(engine.gateway, root);
  engine.starts.delete(root);
  engine.files.forget(root);
}
