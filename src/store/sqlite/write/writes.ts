// One applier per kind of change: its statements, prepared once, and its condition on the state (01 §11.4).
import type { Write } from '#core/ports/journal-writer.ts';
import type { Effects } from '#store/write/effects.ts';

type OfKind<K extends Write['kind']> = Extract<Write, { readonly kind: K }>;

/** Appliers run inside the transaction of the batch and throw to refuse it. */
export type Appliers<K extends Write['kind'] = Write['kind']> = {
  readonly [P in K]: (write: OfKind<P>, effects: Effects) => void;
};

export function applyWrite(appliers: Appliers, write: Write, effects: Effects): void {
  (appliers[write.kind] as (write: Write, effects: Effects) => void)(write, effects);
}
