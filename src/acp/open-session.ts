// One session that an editor has open: its stream, its prompts, its permission requests (19 §4).
import { type AgentContext, type PromptResponse, RequestError, type SessionUpdate } from '@agentclientprotocol/sdk';
import { ApiError, type MetisClient, type Model, type Session, type StreamItem } from '#client/client.ts';
import { createBackoff } from '#client/event-stream.ts';
import { type Clock, sleep } from '#protocol/clock.ts';
import { isDelivery } from '#protocol/text/delivery.ts';
import { createUpdates } from './editor-updates.ts';
import { createPermissions, createPrompts, type Ending, readEnding, readTurnEnding, toTurnContent } from './prompts.ts';
import { listMessagesAfter, replaySession } from './replay-session.ts';
import { findSightedModel } from './session-options.ts';

export interface OpenSession {
  /** Resolves once the stream is established. */
  readonly ready: Promise<void>;
  prompt(prompt: Parameters<typeof toTurnContent>[0], key: string): Promise<PromptResponse>;
  cancel(): Promise<void>;
  /** Stops watching; a running turn continues. */
  leave(): void;
}

export interface SessionParts {
  readonly client: MetisClient;
  readonly editor: AgentContext;
  readonly session: Session;
  readonly models: readonly Model[];
  /** Whether earlier messages are sent to the editor. */
  readonly replayed: boolean;
  /** Sent before the first answer; null = nothing. */
  readonly notice: string | null;
  /** Receives errors that no request waits for. */
  readonly onError: (error: unknown) => void;
  readonly clock: Clock;
}

export function openSession(parts: SessionParts): OpenSession {
  const { client, editor, session, models, onError, clock } = parts;
  const { id } = session;
  const closed = new AbortController();
  const prompts = createPrompts();
  const permissions = createPermissions(client, editor, id, onError);
  let notice = parts.notice;
  /** A prompt was cancelled while its submission was in progress. */
  let cancelled = false;
  const submitting = new Set<Promise<unknown>>();
  const send = async (update: SessionUpdate) => {
    if (!closed.signal.aborted) await editor.notify('session/update', { sessionId: id, update });
  };
  const getContextWindow = (model: string) =>
    models.find((one) => one.id === model)?.capabilities.max_context_tokens ?? 0;
  const updates = createUpdates({
    session: id,
    cwd: session.workspace_path,
    send,
    readChangedFiles: async (worker) => {
      try {
        return (await client.getChangedFiles(worker)).files;
      } catch (error) {
        // The update goes without them: it names the files all the same.
        if (!closed.signal.aborted) onError(error);
        return [];
      }
    },
    getContextWindow,
  });
  const own = new Set<string>();
  let markReady: () => void = () => {};
  let rejectReady: (error: unknown) => void = () => {};
  const ready = new Promise<void>((resolve, reject) => {
    markReady = resolve;
    rejectReady = reject;
  });

  /** Sends stored messages that no event has reported, such as those stored while the connection was lost. */
  async function catchUp(): Promise<void> {
    // Only an answered submission shows which message is this editor's own.
    await Promise.allSettled([...submitting]);
    for await (const message of listMessagesAfter(client, id, updates.through())) {
      // Results of background workers are shown at their calls.
      if (message.role === 'user' && message.turn_id !== null && !own.has(message.turn_id) && !isDelivery(message))
        await sendUserMessage(message.content);
      await updates.message(message);
    }
  }
  async function sendUserMessage(content: readonly { readonly type: string }[]): Promise<void> {
    for (const block of content as readonly { readonly type: string; readonly text?: string }[])
      if (block.type === 'text' && block.text !== undefined)
        await send({ sessionUpdate: 'user_message_chunk', content: { type: 'text', text: block.text } });
  }

  async function handleItem(item: StreamItem, first: boolean): Promise<void> {
    if (item.type === 'snapshot') {
      updates.start(item);
      if (first && parts.replayed) {
        await replaySession(client, id, updates, (message) => sendUserMessage(message.content));
        await updates.sendUsage();
      } else if (first) updates.skip(item.messages.at(-1)?.id ?? null);
      else await catchUp();
      for (const question of item.pending_confirmations) permissions.ask(question);
      for (const turn of prompts.waiting()) {
        const ending = readTurnEnding(await client.getTurn(id, turn));
        if (ending !== null) prompts.resolveEnding(turn, ending);
      }
      markReady();
      return;
    }
    const { event } = item;
    if (event.type === 'tool.confirmation_requested') permissions.ask(event.payload);
    else if (event.type === 'tool.confirmation_resolved')
      permissions.closeRequest(event.payload.confirmation_request_id);
    // Missed messages are sent before the messages that depend on them.
    if (event.type === 'llm.call_completed' && event.session_id === id && !updates.hasSent(event.payload.message_id))
      await catchUp();
    const closed = event.type === 'delegate.completed' || event.type === 'delegate.failed';
    // Messages of a worker that the connection lost are sent before its end.
    if (closed && event.payload.worker_session_id !== null)
      for await (const message of listMessagesAfter(client, event.payload.worker_session_id, null))
        await updates.message(message);
    await updates.event(event);
    if (event.session_id !== id || event.turn_id === null) return;
    if (event.type === 'turn.completed' || event.type === 'turn.failed' || event.type === 'turn.cancelled') {
      await catchUp();
      prompts.resolveEnding(event.turn_id, readEnding(event));
    }
  }

  async function watch(): Promise<void> {
    let first = true;
    const backoff = createBackoff();
    const options = { snapshot: true, include_worker_sessions: true, signal: closed.signal };
    for (let broken = true; broken; ) {
      broken = false;
      for await (const item of client.stream(id, options)) {
        const error = await handleItem(item, first).then(() => null, toError);
        if (error === null) {
          first = false;
          if (item.type === 'event') backoff.reset();
          continue;
        }
        if (first || closed.signal.aborted) throw error;
        // A request failed: the next snapshot brings the rest.
        onError(error);
        broken = true;
        await sleep(clock, backoff.nextDelay(), closed.signal).catch(() => {});
        break;
      }
    }
    throw new Error('the session has ended');
  }
  watch().catch((error: unknown) => {
    rejectReady(error);
    prompts.rejectAll(error);
    permissions.close();
  });
  // A caller that does not wait for it learns of the failure by its prompt.
  ready.catch(() => {});

  async function cancelTurn(turn: string): Promise<void> {
    await client.cancelTurn(id, turn).catch((error: unknown) => {
      if (!(error instanceof ApiError && error.code === 'turn_already_completed')) throw error;
    });
  }
  async function submit(content: ReturnType<typeof toTurnContent>, key: string) {
    try {
      return await client.submitTurn(id, { content }, { idempotencyKey: key });
    } catch (error) {
      const per_message_override = findSightedModel(error, models);
      // A model that the editor's user chose is not replaced.
      if (per_message_override === null || (await client.getSession(id)).active_model !== null) throw error;
      return client.submitTurn(id, { content, per_message_override }, { idempotencyKey: `${key}-sighted` });
    }
  }
  async function answer(ending: Ending): Promise<PromptResponse> {
    if ('failed' in ending) throw ending.failed;
    if (ending.why !== null)
      await send({ sessionUpdate: 'agent_message_chunk', content: { type: 'text', text: ending.why } });
    return { stopReason: ending.stopReason };
  }

  return {
    ready,
    async prompt(prompt, key) {
      await ready;
      prompts.requireWatched();
      cancelled = false;
      const content = toTurnContent(prompt);
      if (content.length === 0) throw RequestError.invalidParams({}, 'the prompt is empty');
      if (notice !== null) {
        await send({ sessionUpdate: 'agent_message_chunk', content: { type: 'text', text: notice } });
        notice = null;
      }
      const submitted = submit(content, key).then((receipt) => {
        own.add(receipt.turn_id);
        return receipt;
      });
      submitting.add(submitted);
      const { turn_id } = await submitted.finally(() => submitting.delete(submitted));
      if (cancelled) await cancelTurn(turn_id);
      return answer(await prompts.end(turn_id));
    },
    async cancel() {
      cancelled = true;
      await Promise.allSettled([...submitting]);
      const { current_turn_id } = await client.getSession(id);
      if (current_turn_id !== null) await cancelTurn(current_turn_id);
    },
    leave() {
      closed.abort();
      permissions.close();
    },
  };
}

function toError(error: unknown): Error {
  if (error instanceof Error) return error;
  return new Error(String(error));
}
