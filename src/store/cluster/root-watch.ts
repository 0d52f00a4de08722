// Shared roots while a node runs: one whose mark is gone leads to other files than those of the cluster (16 §7.1).
import { sharedPlace } from '#core/policy/cluster/tree-place.ts';
import type { Logger } from '#core/ports/logger.ts';
import type { CheckRoot } from './shared-roots.ts';

export interface RootWatch {
  /** Looks at every root; logs what has changed since the last time. */
  check(): Promise<void>;
  /** Those of the places of this node that it can own trees of at this moment. */
  filterPlaces(places: readonly string[]): readonly string[];
  /** Why this node is not ready, null where every root is sound. */
  fault(): string | null;
}

export function createRootWatch(roots: readonly string[], checkRoot: CheckRoot, log: Logger): RootWatch {
  const faults = new Map<string, string>();
  return {
    async check() {
      for (const root of roots) {
        const fault = await checkRoot(root);
        const known = faults.get(root) ?? null;
        if (fault === known) continue;
        if (fault === null) {
          faults.delete(root);
          log.warn({ root }, 'the shared root bears the mark of this cluster again');
        } else {
          faults.set(root, fault);
          log.warn({ root, reason: fault }, 'the shared root is not the one of this cluster; no tree of it is taken');
        }
      }
    },
    filterPlaces: (places) => places.filter((place) => ![...faults.keys()].some((root) => place === sharedPlace(root))),
    fault: () => [...faults.values()][0] ?? null,
  };
}
