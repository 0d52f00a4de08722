// One applier per kind of change: its statements, prepared once, and its condition on the state (01 §11.4).
import type { StoredMessage } from '../../../domain/message.ts';
import type { SessionRecord } from '../../../domain/session.ts';
import type { Write } from '../../../ports/journal.ts';

/** What the journal does after the commit because of a write. */
export interface Effects {
  readonly messages: { readonly message: StoredMessage; readonly bytes: number }[];
  readonly ended: string[];
  /** Sessions whose rows changed: to the given values, or to what the next reader finds. */
  readonly sessions: { readonly id: string; readonly values: Partial<SessionRecord> | null }[];
}

type OfKind<K extends Write['kind']> = Extract<Write, { readonly kind: K }>;

/** Appliers run inside the transaction of the batch and throw to refuse it. */
export type Appliers<K extends Write['kind'] = Write['kind']> = {
  readonly [P in K]: (write: OfKind<P>, effects: Effects) => void;
};

export function applyWrite(appliers: Appliers, write: Write, effects: Effects): void {
  (appliers[write.kind] as (write: Write, effects: Effects) => void)(write, effects);
}
