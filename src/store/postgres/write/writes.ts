// One applier per kind of change. Statements are sent without waiting; conditions are looked at as answers come (16 §3).

import type { Write } from '#core/ports/journal-writer.ts';
import type { Logger } from '#core/ports/logger.ts';
import type { Clock } from '#protocol/clock.ts';
import type { HeldTrees } from '#store/cluster/held.ts';
import type { Effects } from '#store/write/effects.ts';
import type { Tx } from '../connection/pool.ts';

/** What an applier has to work with. */
export interface Step {
  readonly tx: Tx;
  readonly effects: Effects;
  readonly trees: HeldTrees;
  readonly clock: Clock;
  readonly log: Logger;
}

type OfKind<K extends Write['kind']> = Extract<Write, { readonly kind: K }>;

/** A refusal is thrown at once or by the check of a statement. */
export type Appliers<K extends Write['kind'] = Write['kind']> = {
  readonly [P in K]: (write: OfKind<P>, step: Step) => void;
};

export function applyWrite(appliers: Appliers, write: Write, step: Step): void {
  (appliers[write.kind] as (write: Write, step: Step) => void)(write, step);
}
