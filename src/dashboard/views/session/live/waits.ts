// What the sessions of a tree wait for at this moment, in groups: people's matters first (20 §6).
import type { Session } from '#client/client.ts';
import { wordsFor } from '#client/stream-items.ts';
import { needsPerson } from '#dashboard/format/format.ts';
import type { LiveNode } from './live-node.ts';

interface WaitGroup {
  /** `waiting for the model`, `answering`. */
  readonly doing: string;
  readonly names: readonly string[];
  /** Of the first in the group. */
  readonly since: string;
  readonly asks: boolean;
}

const ORDER = ['approval', 'budget', 'slot', 'tool', 'model'];

/** Without a planner that waits for its workers: their own waits are listed. A model whose words arrive is not waited for. */
export function groupWaits(waiting: Session['waiting_on'], nodes: readonly LiveNode[]): readonly WaitGroup[] {
  const byId = new Map(nodes.map((node) => [node.session_id, node]));
  const groups = new Map<string, { doing: string; names: Set<string>; since: string; asks: boolean }>();
  for (const one of ORDER.flatMap((kind) => waiting.filter((wait) => wait.kind === kind))) {
    const node = byId.get(one.session_id);
    const isAnswering = one.kind === 'model' && node?.doing === 'writing';
    const doing = isAnswering ? 'answering' : `waiting for ${wordsFor(one.kind)}`;
    const group = groups.get(doing) ?? { doing, names: new Set(), since: one.since, asks: needsPerson(one) };
    group.names.add(node?.label ?? 'a worker');
    groups.set(doing, group);
  }
  return [...groups.values()].map((group) => ({ ...group, names: [...group.names] }));
}
