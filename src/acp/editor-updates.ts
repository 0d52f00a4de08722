// Turns a session's events into editor updates: each once and in order, live or replayed (19 §4).
import type { SessionUpdate } from '@agentclientprotocol/sdk';
import type { Delegation, Message, Snapshot, StreamEvent } from '#client/client.ts';
import { fromPusd, type Pusd, toPusd, ZERO_PUSD } from '#protocol/money.ts';
import {
  type ContentBlock,
  createPlan,
  createWorkerLabels,
  kindOf,
  locationsOf,
  oneLine,
  textContent,
  textOf,
  titleOf,
} from './editor-content.ts';

export interface UpdatesOf {
  readonly session: string;
  readonly cwd: string;
  readonly send: (update: SessionUpdate) => Promise<void>;
  /** Context window of a model. */
  readonly windowOf: (model: string) => number;
}

/** What an editor shows of a worker beside its task. */
export type OpenedWorker = Pick<
  Delegation,
  'tier' | 'worker_name' | 'resolved_model' | 'allowed_tool_count' | 'dropped_tools'
>;

export interface Updates {
  /** The state that the events behind it continue. */
  begins(snapshot: Snapshot): void;
  event(event: StreamEvent): Promise<void>;
  /** A stored message of the session, or of a worker: what of it was not told yet. */
  message(message: Message): Promise<void>;
  /** A worker that was opened before the watching began. */
  worker(worker: string, call: string, opened: OpenedWorker): Promise<void>;
  workerEnded(call: string): Promise<void>;
  /** What the tree has cost so far, and how full the planner's window is; nothing where no model was called. */
  spent(): Promise<void>;
  /** Whether all of this message was told. */
  heard(message: string | null): boolean;
  /** What stands up to this message needs no telling. */
  skip(message: string | null): void;
  /** The session's own message that was told last and is complete. */
  readonly through: () => string | null;
}

type Input = Readonly<Record<string, unknown>>;
/** Of one call. */
type Usage = NonNullable<Message['metadata']['usage']>;

/** What of one message was told, by block. */
interface Told {
  readonly chars: number[];
}

export function createUpdates({ session, cwd, send, windowOf }: UpdatesOf): Updates {
  const messages = new Map<string, Told>();
  /** Calls that were told, with their input and the name of their tool. */
  const calls = new Map<string, { readonly name: string; readonly input: Input; done: boolean }>();
  const names = new Map<string, string>();
  const whole = new Set<string>();
  /** Calls whose results were told. */
  const results = new Set<string>();
  const workers = createWorkerLabels();
  const plan = createPlan();
  let cost: Pusd = ZERO_PUSD;
  let used = 0;
  let size = 0;
  let through: string | null = null;

  const maybe = async (update: SessionUpdate | null) => {
    if (update !== null) await send(update);
  };
  function told(id: string): Told {
    const known = messages.get(id) ?? { chars: [] };
    messages.set(id, known);
    return known;
  }

  async function append(message: string, index: number, thought: boolean, text: string): Promise<void> {
    if (text === '') return;
    const { chars } = told(message);
    chars[index] = (chars[index] ?? 0) + text.length;
    const sessionUpdate = thought ? 'agent_thought_chunk' : 'agent_message_chunk';
    await send({ sessionUpdate, content: { type: 'text', text }, messageId: message });
  }

  /** What of this block's text was not told yet. */
  function rest(message: string, index: number, text: string): string {
    return text.slice(told(message).chars[index] ?? 0);
  }

  async function toolCall(from: string, id: string, name: string, input: Input): Promise<void> {
    if (calls.has(id)) return;
    calls.set(id, { name, input, done: false });
    const worker = workers.of(from);
    await send({
      sessionUpdate: 'tool_call',
      toolCallId: id,
      title: worker === null ? titleOf(name, input) : `[${worker.label}] ${titleOf(name, input)}`,
      kind: kindOf(name),
      status: 'pending',
      locations: locationsOf(cwd, input),
      rawInput: input,
      ...(worker === null ? {} : { _meta: { metis: { parent_tool_call_id: worker.call } } }),
    });
  }

  async function complete(
    from: string,
    message: string,
    content: readonly ContentBlock[],
    ended: boolean,
  ): Promise<void> {
    const own = from === session;
    if (ended) whole.add(message);
    for (const [index, block] of content.entries()) {
      if (own && block.type === 'text') await append(message, index, false, rest(message, index, block.text));
      else if (own && block.type === 'thinking') await append(message, index, true, rest(message, index, block.text));
      else if (block.type === 'tool_use') await toolCall(from, block.id, block.name, block.input);
    }
    if (!ended) return;
    if (own) return maybe(plan.begins(content));
    const worker = workers.of(from);
    const text = textOf(content);
    if (worker !== null && text !== '' && calls.get(worker.call)?.done !== true)
      await send({ sessionUpdate: 'tool_call_update', toolCallId: worker.call, content: textContent(text) });
  }

  async function startedWorker(worker: string, call: string, opened: OpenedWorker): Promise<void> {
    if (workers.of(worker) !== null) return;
    const { resolved_model: model, dropped_tools, allowed_tool_count } = opened;
    const what = opened.worker_name ?? opened.tier ?? 'named';
    workers.started(worker, call, what);
    // Tools that the planner did not name are left out of every worker of its kind: the title is for what it named.
    const isAsked = allowed_tool_count !== null && dropped_tools.length > 0;
    const lacking = isAsked ? ` without ${oneLine(dropped_tools.join(', '))}` : '';
    const task = calls.get(call)?.input.task ?? calls.get(call)?.input.input;
    await send({
      sessionUpdate: 'tool_call_update',
      toolCallId: call,
      title: `${what} worker${lacking}: ${oneLine(typeof task === 'string' ? task : '')}`,
      _meta: { metis: { worker_session_id: worker, model, dropped_tools } },
    });
    await maybe(plan.moved(call, 'in_progress'));
  }

  async function finished(id: string, success: boolean): Promise<void> {
    const call = calls.get(id);
    if (call?.done === true) return;
    if (call !== undefined) call.done = true;
    await send({ sessionUpdate: 'tool_call_update', toolCallId: id, status: success ? 'completed' : 'failed' });
  }

  function filled(model: string, usage: Usage): void {
    const { input_tokens, cached_input_tokens, cache_creation_input_tokens, output_tokens } = usage;
    used = input_tokens + cached_input_tokens + cache_creation_input_tokens + output_tokens;
    size = windowOf(model);
  }

  function tellSpent(): Promise<void> {
    const exact = fromPusd(cost);
    return send({
      sessionUpdate: 'usage_update',
      used,
      size,
      cost: { amount: Number(exact), currency: 'USD' },
      _meta: { metis: { cost_usd: exact } },
    });
  }

  async function tellMessage({ id, session_id, role, content, metadata }: Message): Promise<void> {
    const { model, usage } = metadata;
    if (session_id === session && model !== null && usage !== null) filled(model, usage);
    if (role === 'assistant' && metadata.status === 'complete') await complete(session_id, id, content, true);
    if (role === 'tool') await result(content[0], metadata.parent_tool_use_id);
    if (session_id === session) through = id;
  }

  async function result(block: ContentBlock | undefined, call: string | null): Promise<void> {
    if (block?.type !== 'tool_result' || call === null || results.has(call)) return;
    results.add(call);
    await finished(call, !block.is_error);
    const text = textOf(block.content as readonly ContentBlock[]);
    await send({ sessionUpdate: 'tool_call_update', toolCallId: call, content: textContent(text) });
  }

  return {
    begins({ session: { cost_so_far_usd, workers_cost_usd } }) {
      cost = (toPusd(cost_so_far_usd) + toPusd(workers_cost_usd)) as Pusd;
    },
    async event(event) {
      const own = event.session_id === session;
      switch (event.type) {
        case 'message.start': {
          const { message_id, content } = event.payload;
          return complete(event.session_id, message_id, content, false);
        }
        case 'text.delta':
        case 'thinking.delta': {
          const { message_id, content_block_index: index, text } = event.payload;
          if (own) await append(message_id, index, event.type === 'thinking.delta', text);
          return;
        }
        case 'tool.use_start':
          names.set(event.payload.tool_use_id, event.payload.tool_name);
          return;
        case 'tool.use_end': {
          const { tool_use_id: id, final_input } = event.payload;
          const name = names.get(id);
          if (name !== undefined) await toolCall(event.session_id, id, name, final_input);
          return;
        }
        case 'message.complete':
          return complete(event.session_id, event.payload.message_id, event.payload.final_content, true);
        case 'message.appended': {
          const { message } = event.payload;
          return message.role === 'tool' ? result(message.content[0], message.metadata.parent_tool_use_id) : undefined;
        }
        case 'tool.called': {
          const { tool_use_id: id, tool_name, side_effects } = event.payload;
          return send({
            sessionUpdate: 'tool_call_update',
            toolCallId: id,
            status: 'in_progress',
            kind: kindOf(tool_name, side_effects),
          });
        }
        case 'tool.completed':
          return finished(event.payload.tool_use_id, event.payload.success);
        case 'tool.failed':
        case 'tool.input_invalid':
          return finished(event.payload.tool_use_id, false);
        case 'delegate.started': {
          const { worker_session_id, tool_use_id } = event.payload;
          return startedWorker(worker_session_id, tool_use_id, event.payload);
        }
        case 'delegate.completed':
        case 'delegate.failed':
          return maybe(plan.moved(event.payload.tool_use_id, 'completed'));
        case 'llm.call_completed': {
          const { payload } = event;
          cost = (cost + toPusd(payload.cost_usd)) as Pusd;
          if (own) filled(payload.model, payload);
          return tellSpent();
        }
        default:
      }
    },
    message: tellMessage,
    worker: startedWorker,
    workerEnded: (call) => maybe(plan.moved(call, 'completed')),
    spent: async () => {
      if (used > 0 || cost > ZERO_PUSD) await tellSpent();
    },
    heard: (message) => message === null || whole.has(message),
    skip: (message) => {
      through = message;
    },
    through: () => through,
  };
}
