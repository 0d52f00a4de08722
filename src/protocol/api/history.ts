// What the reads of a session's history answer (05 §3.4).
import { z } from 'zod';
import { DelegationSchema } from '../delegate.ts';
import { AnyEventSchema } from '../event.ts';
import { MessageSchema } from '../message.ts';

export const MessageListReply = z.object({
  messages: z.array(MessageSchema),
  has_more_before: z.boolean(),
  has_more_after: z.boolean(),
});
export const EventListReply = z.object({ events: z.array(AnyEventSchema), next_cursor: z.string().nullable() });
export const WorkerListReply = z.object({ workers: z.array(DelegationSchema), next_cursor: z.string().nullable() });
