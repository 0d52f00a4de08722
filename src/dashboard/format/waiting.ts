// What an open turn waits for, in one line (20 §6).
import type { Session } from '#client/client.ts';
import { type Waiting, waitingEnds, wordsFor } from '#client/stream-items.ts';

/** What only a person ends. */
export function asksPerson({ kind }: Waiting): boolean {
  return kind === 'approval' || kind === 'budget';
}

/** The end of each chain, people's matters first: `an approval, a model (2)`. Empty when nothing is waited for. */
export function waitsFor(waiting: Session['waiting_on']): string {
  const counts = new Map<string, number>();
  for (const one of waitingEnds(waiting).toSorted((a, b) => Number(asksPerson(b)) - Number(asksPerson(a)))) {
    counts.set(one.kind, (counts.get(one.kind) ?? 0) + 1);
  }
  return [...counts]
    .map(([kind, n]) => {
      const words = wordsFor(kind as Waiting['kind']);
      return n === 1 ? words : `${words} (${n})`;
    })
    .join(', ');
}
