// What a session waits for, in words for a person (20 §6): the same in a terminal and in the dashboard.
import type { Session } from '#protocol/session.ts';

export type Waiting = Session['waiting_on'][number];

const WORDS: Readonly<Record<Waiting['kind'], string>> = {
  approval: 'an approval',
  budget: 'a higher budget',
  model: 'the model',
  tool: 'a tool',
  worker: 'a worker',
  slot: 'a place in the queue',
};

/** `an approval`; a kind that is not known stands as it is. */
export function wordsFor(kind: Waiting['kind']): string {
  return WORDS[kind] ?? kind;
}

/** Without those that wait for a worker: they wait for what that worker waits for. */
export function waitingEnds(waiting: readonly Waiting[]): readonly Waiting[] {
  return waiting.filter(({ kind }) => kind !== 'worker');
}
