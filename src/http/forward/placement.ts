// Which node is to take a tree that nobody owns (16 §5.4).
import type { NodeInfo } from '#core/ports/trees.ts';

/**
 * The node with the tree's place that runs the fewest turns, this one first among equals; null when none lives.
 * @param self id of this node
 */
export function nodeFor(place: string, nodes: readonly NodeInfo[], self: string): NodeInfo | null {
  const able = nodes.filter((node) => !node.draining && node.places.includes(place));
  const rank = (node: NodeInfo) => node.turns + (node.id === self ? 0 : 0.5);
  return able.reduce<NodeInfo | null>((best, node) => (best === null || rank(node) < rank(best) ? node : best), null);
}
