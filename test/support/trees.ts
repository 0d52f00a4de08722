// Who owns the trees of a test, as the test says.
import type { Hold, NodeInfo, Trees } from '#core/ports/tree-ownership.ts';

/** Where a tree is, as this node sees it at this moment. */
export type Whereabouts =
  | { readonly here: true; readonly epoch: number }
  | { readonly here: false; readonly url: string | null; readonly epoch: number };

export interface ScriptedTrees extends Trees {
  /** What `hold` was asked for so far. */
  readonly asked: ('claim' | 'look')[];
  /** Held at this moment. */
  users(): number;
}

/** @param where of every tree, asked anew each time */
export function scriptedTrees(
  where: (how: 'claim' | 'look') => Whereabouts | null,
  nodes: () => readonly NodeInfo[] = () => [],
  node = 'self',
): ScriptedTrees {
  const asked: ScriptedTrees['asked'] = [];
  let users = 0;
  return {
    several: true,
    node,
    url: '',
    unready: () => null,
    asked,
    users: () => users,
    async hold(_root, how = 'claim'): Promise<Hold | null> {
      asked.push(how);
      const at = where(how);
      if (at === null || !at.here) return at && { own: false, url: at.url, epoch: at.epoch, place: PLACE };
      users += 1;
      return {
        own: true,
        epoch: at.epoch,
        release() {
          users -= 1;
        },
      };
    },
    holds: () => where('look')?.here === true,
    join: async () => {},
    drain: () => {},
    release: () => {},
    onLost: () => {},
    releaseAll: async () => {},
    nodes: async () => nodes(),
  };
}

const PLACE = 'shared:/work';

/** @param rest what matters */
export function nodeInfo(rest: Partial<NodeInfo>): NodeInfo {
  const id = rest.id ?? 'other';
  return {
    id,
    name: id,
    version: '0',
    url: `http://${id}`,
    draining: false,
    places: [PLACE],
    turns: 0,
    trees: 0,
    config_matches: true,
    config_differs: [],
    ...rest,
  };
}
