// Replays a session's stored messages and workers to an editor that opens it (19 §4).
import type { Delegation, Message, MetisClient } from '#client/client.ts';
import { isDelivery } from '#protocol/text/delivery.ts';
import { joinText } from './editor-content.ts';
import type { Updates } from './editor-updates.ts';

/** Messages above this id, oldest first. */
export async function* listMessagesAfter(
  client: MetisClient,
  session: string,
  after: string | null,
): AsyncGenerator<Message> {
  // Below every possible id.
  let last = after ?? '00000000000000000000000000';
  for (;;) {
    const { messages, has_more_after } = await client.listMessages(session, { after: last, limit: 200 });
    yield* messages;
    const newest = messages.at(-1);
    if (newest === undefined || !has_more_after) return;
    last = newest.id;
  }
}

/** Sends the whole history, workers at the place of their calls. `onUserMessage` receives what users wrote. */
export async function replaySession(
  client: MetisClient,
  session: string,
  updates: Updates,
  onUserMessage: (message: Message, text: string) => Promise<void>,
): Promise<void> {
  const workers = new Map<string, Delegation>();
  let cursor: string | undefined;
  do {
    const page = await client.listWorkers(session, { limit: 200, recursive: true, ...(cursor && { cursor }) });
    for (const delegation of page.workers) workers.set(delegation.tool_use_id, delegation);
    cursor = page.next_cursor ?? undefined;
  } while (cursor !== undefined);

  async function replayMessage(message: Message): Promise<void> {
    await updates.message(message);
    if (message.role !== 'assistant') return;
    for (const block of message.content) {
      const delegation = block.type === 'tool_use' ? workers.get(block.id) : undefined;
      if (delegation !== undefined) await replayWorker(delegation);
    }
  }
  async function replayWorker(delegation: Delegation): Promise<void> {
    const { worker_session_id: worker, tool_use_id } = delegation;
    if (worker === null) return;
    await updates.worker(worker, tool_use_id, delegation);
    for await (const message of listMessagesAfter(client, worker, null)) await replayMessage(message);
    if (delegation.ended_at !== null)
      await updates.completeWorker(tool_use_id, delegation.failure_mode === null, delegation);
  }
  for await (const message of listMessagesAfter(client, session, null)) {
    // The results of background workers are shown at their calls.
    if (message.role === 'user' && !isDelivery(message)) await onUserMessage(message, joinText(message.content));
    await replayMessage(message);
  }
}
