// What this node says to the others: its publications, and messages in mid-stream to who asks for them (16 §6.2, §6.5).
import type { Position, Published } from '#core/ports/live-bus.ts';
import type { Clock } from '#protocol/clock.ts';
import { createSeals, type FrameBody, MAX_FRAME_BYTES } from './frame.ts';
import type { Link } from './link.ts';
import { type Head, packItems } from './pack.ts';
import type { Tree } from './tree.ts';

export interface OutboxParts {
  readonly cluster: string;
  readonly link: Link;
  readonly key: Buffer;
  readonly owns: (root: string) => boolean;
  readonly clock: Clock;
}

export interface Outbox {
  send(tree: Tree, items: readonly Published[], at: Position): void;
  /** Asks the owner for its messages in mid-stream. */
  ask(root: string): void;
  /** Hears the frames of a tree, with their size. Returns the end. */
  listen(root: string, hear: (frame: FrameBody, bytes: number) => void): () => void;
}

/** Answers to one tree's askers, however many ask: an answer is as long as the messages are. */
const SAY_EVERY_MS = 250;
const NOTHING = new Uint8Array();

/** @param known the tree, where this node has spoken of it */
export function createOutbox(parts: OutboxParts, known: (root: string) => Tree | null): Outbox {
  const { cluster, link, owns, clock } = parts;
  const seals = createSeals(parts.key);
  const saying = new Set<string>();
  const treeSubject = (root: string) => `${cluster}.tree.${root}`;
  const askSubject = (root: string) => `${cluster}.say.${root}`;

  function transmit({ root }: Tree, items: readonly Published[], head: Head): void {
    const subject = treeSubject(root);
    for (const text of packItems(items, head)) {
      const bytes = seals.seal(subject, text);
      // Its number is used up, so that the others notice.
      if (bytes.length <= MAX_FRAME_BYTES) link.publish(subject, bytes);
    }
  }
  function say(root: string): void {
    const tree = known(root);
    if (tree === null || saying.has(root) || !owns(root)) return;
    const starts = tree.listed(() => true);
    if (starts.length === 0) return;
    saying.add(root);
    clock.after(SAY_EVERY_MS, () => {
      if (saying.delete(root) && late.delete(root)) say(root);
    });
    const items = starts.map((transient): Published => ({ kind: 'transient', transient }));
    transmit(tree, items, { epoch: tree.epoch, seq: tree.seen, kind: 'said', next: tree.nextFrame });
  }
  /** Who asked while the last answer was young. */
  const late = new Set<string>();
  link.listen(askSubject('*'), (_data, subject) => {
    const root = subject.slice(askSubject('').length);
    if (saying.has(root)) late.add(root);
    else say(root);
  });

  return {
    send(tree, items, { epoch, seq, commit }) {
      // Counted all the same: the others notice that they were told nothing.
      if (!link.up()) tree.nextFrame();
      else transmit(tree, items, { epoch, seq, kind: commit ? 'commit' : 'between', next: tree.nextFrame });
    },
    ask: (root) => link.publish(askSubject(root), NOTHING),
    listen(root, hear) {
      const subject = treeSubject(root);
      return link.listen(subject, (data) => {
        const frame = seals.open(subject, data);
        if (frame !== null) hear(frame, data.length);
      });
    },
  };
}
