// One session that an editor has open: its stream, its prompts, its permission requests (19 §4).
import { type AgentContext, type PromptResponse, RequestError, type SessionUpdate } from '@agentclientprotocol/sdk';
import { ApiError, type MetisClient, type Model, type Session, type StreamItem } from '#client/client.ts';
import { createBackoff } from '#client/event-stream.ts';
import { type Clock, sleep } from '#protocol/clock.ts';
import { createUpdates } from './editor-updates.ts';
import { createPermissions, createPrompts, type Ending, endingOf, endingOfTurn, turnContent } from './prompts.ts';
import { messagesAfter, replay } from './replay-session.ts';
import { findSightedModel } from './session-options.ts';

export interface OpenSession {
  /** Resolves once the stream stands. */
  readonly standing: Promise<void>;
  prompt(prompt: Parameters<typeof turnContent>[0], key: string): Promise<PromptResponse>;
  cancel(): Promise<void>;
  /** Stops watching; what runs goes on. */
  leave(): void;
}

export interface SessionParts {
  readonly client: MetisClient;
  readonly editor: AgentContext;
  readonly session: Session;
  readonly models: readonly Model[];
  /** Tell what was said before. */
  readonly replayed: boolean;
  /** Said before the first answer; null = nothing. */
  readonly notice: string | null;
  /** Hears what nobody waits for. */
  readonly failed: (error: unknown) => void;
  readonly clock: Clock;
}

export function openSession(parts: SessionParts): OpenSession {
  const { client, editor, session, models, failed, clock } = parts;
  const { id } = session;
  const left = new AbortController();
  const prompts = createPrompts();
  const permissions = createPermissions(client, editor, id, failed);
  let notice = parts.notice;
  /** Of a prompt that is on its way. */
  let cancelled = false;
  const submitting = new Set<Promise<unknown>>();
  const send = async (update: SessionUpdate) => {
    if (!left.signal.aborted) await editor.notify('session/update', { sessionId: id, update });
  };
  const windowOf = (model: string) => models.find((one) => one.id === model)?.capabilities.max_context_tokens ?? 0;
  const updates = createUpdates({ session: id, cwd: session.workspace_path, send, windowOf });
  const own = new Set<string>();
  let stand: () => void = () => {};
  let refuse: (error: unknown) => void = () => {};
  const standing = new Promise<void>((resolve, reject) => {
    stand = resolve;
    refuse = reject;
  });

  /** Stored messages that no event has told of, such as those that came while there was no connection. */
  async function catchUp(): Promise<void> {
    // Whose message it is shows when it is answered for.
    await Promise.allSettled([...submitting]);
    for await (const message of messagesAfter(client, id, updates.through())) {
      if (message.role === 'user' && message.turn_id !== null && !own.has(message.turn_id)) await said(message.content);
      await updates.message(message);
    }
  }
  async function said(content: readonly { readonly type: string }[]): Promise<void> {
    for (const block of content as readonly { readonly type: string; readonly text?: string }[])
      if (block.type === 'text' && block.text !== undefined)
        await send({ sessionUpdate: 'user_message_chunk', content: { type: 'text', text: block.text } });
  }

  async function take(item: StreamItem, first: boolean): Promise<void> {
    if (item.type === 'snapshot') {
      updates.begins(item);
      if (first && parts.replayed) {
        await replay(client, id, updates, (message) => said(message.content));
        await updates.spent();
      } else if (first) updates.skip(item.messages.at(-1)?.id ?? null);
      else await catchUp();
      for (const question of item.pending_confirmations) permissions.ask(question);
      for (const turn of prompts.waiting()) {
        const ending = endingOfTurn(await client.getTurn(id, turn));
        if (ending !== null) prompts.ended(turn, ending);
      }
      stand();
      return;
    }
    const { event } = item;
    if (event.type === 'tool.confirmation_requested') permissions.ask(event.payload);
    else if (event.type === 'tool.confirmation_resolved') permissions.answered(event.payload.confirmation_request_id);
    // What was missed stands before what follows from it.
    if (event.type === 'llm.call_completed' && event.session_id === id && !updates.heard(event.payload.message_id))
      await catchUp();
    const closed = event.type === 'delegate.completed' || event.type === 'delegate.failed';
    // What the connection lost of a worker has its place before its end.
    if (closed && event.payload.worker_session_id !== null)
      for await (const message of messagesAfter(client, event.payload.worker_session_id, null))
        await updates.message(message);
    await updates.event(event);
    if (event.session_id !== id || event.turn_id === null) return;
    if (event.type === 'turn.completed' || event.type === 'turn.failed' || event.type === 'turn.cancelled') {
      await catchUp();
      prompts.ended(event.turn_id, endingOf(event));
    }
  }

  async function watch(): Promise<void> {
    let first = true;
    const backoff = createBackoff();
    const options = { snapshot: true, include_worker_sessions: true, signal: left.signal };
    for (let broken = true; broken; ) {
      broken = false;
      for await (const item of client.stream(id, options)) {
        const error = await take(item, first).then(() => null, toError);
        if (error === null) {
          first = false;
          if (item.type === 'event') backoff.good();
          continue;
        }
        if (first || left.signal.aborted) throw error;
        // A request failed on the way: the next snapshot brings what this one left out.
        failed(error);
        broken = true;
        await sleep(clock, backoff.lost(), left.signal).catch(() => {});
        break;
      }
    }
    throw new Error('the session has ended');
  }
  watch().catch((error: unknown) => {
    refuse(error);
    prompts.giveUp(error);
    permissions.close();
  });
  // Who does not wait for it is told by their prompt.
  standing.catch(() => {});

  async function cancelTurn(turn: string): Promise<void> {
    await client.cancelTurn(id, turn).catch((error: unknown) => {
      if (!(error instanceof ApiError && error.code === 'turn_already_completed')) throw error;
    });
  }
  async function submit(content: ReturnType<typeof turnContent>, key: string) {
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
    standing,
    async prompt(prompt, key) {
      await standing;
      prompts.requireWatched();
      cancelled = false;
      const content = turnContent(prompt);
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
      left.abort();
      permissions.close();
    },
  };
}

function toError(error: unknown): Error {
  return error instanceof Error ? error : new Error(String(error));
}
