// A session tree on its way: painted in place on a terminal, else a line for each step.
import type { StreamEvent } from '#client/client.ts';
import { type LiveTree, startLiveTree } from './live-tree.ts';
import type { SessionTree } from './session-tree.ts';
import { type Style, toPrintable } from './style.ts';
import type { TextOutput } from './terminal.ts';

export interface Watch extends LiveTree {
  /** Every event of the tree, in order. */
  apply(event: StreamEvent): void;
}

/** The label of a planner or of a worker without a name; a longer one stands as it is. */
const LABEL_WIDTH = 9;

/** `note` is shown below the painted tree, where it is not empty. */
export function startWatch(tree: SessionTree, output: TextOutput, style: Style, note?: () => string): Watch {
  if (output.isTTY === true) {
    const live = startLiveTree(tree, output, style, note ? { note } : {});
    return { ...live, apply: (event) => void tree.apply(event) };
  }
  return {
    apply(event) {
      const line = tree.apply(event);
      const label = tree.nodes.find((node) => node.session_id === event.session_id)?.label ?? '';
      if (line !== null) output.write(`${label.padEnd(LABEL_WIDTH)} ${toPrintable(line)}\n`);
    },
    say: (text) => output.write(`${text}\n`),
    hold: () => () => {},
    stop() {},
  };
}
