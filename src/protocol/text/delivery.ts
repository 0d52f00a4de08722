// Recognizes the messages by which a turn gets the results of its background workers (20 §9).
import type { Message } from '../message.ts';

/** Whether this message holds the result of a background worker, whose call its metadata name: no person wrote it. */
export function isDelivery({ role, metadata }: Pick<Message, 'role' | 'metadata'>): boolean {
  return role === 'user' && metadata.parent_tool_use_id !== null;
}
