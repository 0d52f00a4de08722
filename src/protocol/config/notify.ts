// Who outside is told of what happens: the receivers of the operator's own file (20 §7).
import { z } from 'zod';
import type { EventType } from '../event.ts';

/** What may be told; all else stays on the streams. */
export const NOTIFIED_EVENTS = [
  'turn.completed',
  'turn.failed',
  'turn.cancelled',
  'tool.confirmation_requested',
  'tool.confirmation_resolved',
  'budget.warning',
  'budget.exceeded',
  'delegate.failed',
  'session.ended',
] as const satisfies readonly EventType[];

export const ReceiverSchema = z.strictObject({
  url: z.string().refine(isPlainUrl, 'must be an http or https URL without user and password'),
  events: z.array(z.enum(NOTIFIED_EVENTS)).min(1),
  /** The variable that holds the key of the signature. */
  secret_env: z.string().min(1).nullable().default(null),
  /** Events of workers too. What a worker asks a person is told in any case. */
  include_workers: z.boolean().default(false),
});
export type Receiver = z.infer<typeof ReceiverSchema>;

export const NotifySchema = z
  .array(ReceiverSchema)
  .max(10)
  .refine(
    (all) => new Set(all.map(({ url }) => (URL.canParse(url) ? new URL(url).href : url))).size === all.length,
    'names a URL twice; list its events once',
  );

function isPlainUrl(text: string): boolean {
  if (!URL.canParse(text)) return false;
  const { protocol, username, password } = new URL(text);
  return (protocol === 'https:' || protocol === 'http:') && username === '' && password === '';
}
