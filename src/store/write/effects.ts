// What the journal does after the commit because of a write.
import type { StoredMessage } from '#protocol/message.ts';
import type { SessionRecord } from '#protocol/session.ts';

export interface Effects {
  readonly messages: { readonly message: StoredMessage; readonly bytes: number }[];
  readonly ended: string[];
  /** Sessions whose rows changed: to the given values, or to what the next reader finds. */
  readonly sessions: { readonly id: string; readonly values: Partial<SessionRecord> | null }[];
}
