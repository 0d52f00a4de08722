// Turns a session's events into editor updates: each once and in order, live or replayed (19 §4).
import type { SessionUpdate } from '@agentclientprotocol/sdk';
import type { ChangedTexts, Delegation, Message, Snapshot, StreamEvent } from '#client/client.ts';
import { fromPusd, type Pusd, toPusd, ZERO_PUSD } from '#protocol/money.ts';
import {
  type ContentBlock,
  createCallContents,
  createPlan,
  createWorkerLabels,
  formatTitle,
  getToolKind,
  joinText,
  listLocations,
  toDiffContent,
  toOneLine,
} from './editor-content.ts';

export interface UpdateParts {
  readonly session: string;
  readonly cwd: string;
  readonly send: (update: SessionUpdate) => Promise<void>;
  /** Texts of the files that a worker changed in its worktree; none where they cannot be read. */
  readonly readChangedFiles: (worker: string) => Promise<ChangedTexts['files']>;
  /** Context window of a model. */
  readonly getContextWindow: (model: string) => number;
}

/** What an editor shows of a worker beside its task. */
export type OpenedWorker = Pick<
  Delegation,
  'tier' | 'worker_name' | 'resolved_model' | 'allowed_tool_count' | 'dropped_tools' | 'isolation'
>;

/** What an editor shows of the changes of a worker. */
type Changes = Pick<Delegation, 'worker_session_id' | 'changed_files' | 'applied'>;

export interface Updates {
  /** The state that later events continue. */
  start(snapshot: Snapshot): void;
  event(event: StreamEvent): Promise<void>;
  /** Sends those parts of a stored message, of the session or of a worker, that were not sent yet. */
  message(message: Message): Promise<void>;
  /** A worker that was opened before the stream began: its call runs. */
  worker(worker: string, call: string, opened: OpenedWorker): Promise<void>;
  /** A worker that has ended before the stream began. */
  completeWorker(call: string, success: boolean, changes: Changes): Promise<void>;
  /** Sends the cost so far and how full the planner's context window is; nothing before the first model call. */
  sendUsage(): Promise<void>;
  /** Whether this message was sent completely. */
  hasSent(message: string | null): boolean;
  /** Messages up to this one need not be sent. */
  skip(message: string | null): void;
  /** The last complete message of the session that was sent. */
  readonly through: () => string | null;
}

type Input = Readonly<Record<string, unknown>>;
/** Usage of one call. */
type Usage = NonNullable<Message['metadata']['usage']>;

/** How many characters of a message were sent, by block. */
interface SentMessage {
  readonly chars: number[];
}

/** A call that was sent. */
interface SentCall {
  readonly input: Input;
  /** It was made in a worktree: a file there is not the file of that name that the editor shows. */
  readonly isolated: boolean;
  done: boolean;
}

export function createUpdates(parts: UpdateParts): Updates {
  const { session, cwd, send, getContextWindow: windowOf } = parts;
  const messages = new Map<string, SentMessage>();
  const calls = new Map<string, SentCall>();
  const contents = createCallContents();
  const names = new Map<string, string>();
  const whole = new Set<string>();
  /** Calls whose results were sent. */
  const results = new Set<string>();
  const workers = createWorkerLabels();
  const plan = createPlan();
  let cost: Pusd = ZERO_PUSD;
  let used = 0;
  let size = 0;
  let lastMessage: string | null = null;

  const sendIfAny = async (update: SessionUpdate | null) => {
    if (update !== null) await send(update);
  };
  function findSent(id: string): SentMessage {
    const known = messages.get(id) ?? { chars: [] };
    messages.set(id, known);
    return known;
  }

  async function sendChunk(message: string, index: number, thought: boolean, text: string): Promise<void> {
    if (text === '') return;
    const { chars } = findSent(message);
    chars[index] = (chars[index] ?? 0) + text.length;
    const content = { type: 'text', text } as const;
    if (thought) await send({ sessionUpdate: 'agent_thought_chunk', content, messageId: message });
    else await send({ sessionUpdate: 'agent_message_chunk', content, messageId: message });
  }

  /** The part of this block's text that was not sent yet. */
  function unsentText(message: string, index: number, text: string): string {
    return text.slice(findSent(message).chars[index] ?? 0);
  }

  async function sendToolCall(from: string, id: string, name: string, input: Input): Promise<void> {
    if (calls.has(id)) return;
    const worker = workers.findLabel(from);
    const isolated = worker?.isolated === true;
    calls.set(id, { input, isolated, done: false });
    await send({
      sessionUpdate: 'tool_call',
      toolCallId: id,
      title: `${worker === null ? '' : `[${worker.label}] `}${formatTitle(name, input)}`,
      kind: getToolKind(name),
      status: 'pending',
      locations: isolated ? [] : listLocations(cwd, input),
      rawInput: input,
      ...(worker !== null && { _meta: { metis: { parent_tool_call_id: worker.call } } }),
    });
  }

  async function sendContent(
    from: string,
    message: string,
    content: readonly ContentBlock[],
    ended: boolean,
  ): Promise<void> {
    const own = from === session;
    if (ended) whole.add(message);
    for (const [index, block] of content.entries()) {
      if (own && block.type === 'text') await sendChunk(message, index, false, unsentText(message, index, block.text));
      else if (own && block.type === 'thinking')
        await sendChunk(message, index, true, unsentText(message, index, block.text));
      else if (block.type === 'tool_use') await sendToolCall(from, block.id, block.name, block.input);
    }
    if (!ended) return;
    if (own) return sendIfAny(plan.startPlan(content));
    const worker = workers.findLabel(from);
    const text = joinText(content);
    if (worker !== null && text !== '' && calls.get(worker.call)?.done !== true)
      await sendCallContent(worker.call, { text });
  }

  function sendCallContent(call: string, over: Parameters<typeof contents.replace>[1]): Promise<void> {
    return send({ sessionUpdate: 'tool_call_update', toolCallId: call, content: contents.replace(call, over) });
  }

  async function showWorker(worker: string, call: string, opened: OpenedWorker): Promise<void> {
    if (workers.findLabel(worker) !== null) return;
    const { resolved_model: model, dropped_tools, allowed_tool_count } = opened;
    const what = opened.worker_name ?? opened.tier ?? 'named';
    // A shared worker below one in a worktree works there too.
    const isolated = opened.isolation === 'worktree' || calls.get(call)?.isolated === true;
    workers.addWorker(worker, { call, what, isolated });
    // The title names only tools that the planner asked for: others are missing from every worker of this kind.
    const isAsked = allowed_tool_count !== null && dropped_tools.length > 0;
    const lacking = isAsked ? ` without ${toOneLine(dropped_tools.join(', '))}` : '';
    const task = calls.get(call)?.input.task ?? calls.get(call)?.input.input;
    await send({
      sessionUpdate: 'tool_call_update',
      toolCallId: call,
      title: `${what} worker${lacking}: ${toOneLine(typeof task === 'string' ? task : '')}`,
      _meta: { metis: { worker_session_id: worker, model, dropped_tools } },
    });
    await sendIfAny(plan.setStatus(call, 'in_progress'));
  }

  async function replayWorker(worker: string, call: string, opened: OpenedWorker): Promise<void> {
    await showWorker(worker, call, opened);
    await send({ sessionUpdate: 'tool_call_update', toolCallId: call, status: 'in_progress' });
  }

  /** A call whose worker runs in the background ends with its worker (20 §9). */
  const runsOn = (id: string, success: boolean) => success && calls.get(id)?.input.background === true;

  /** Changes that were applied from a worktree to the editor's files are edits of the call that delegated. */
  async function showAppliedChanges(
    call: string,
    { worker_session_id: worker, changed_files, applied }: Changes,
  ): Promise<void> {
    if (applied !== true || changed_files.length === 0 || calls.get(call)?.isolated === true) return;
    const locations = changed_files.flatMap(({ path }) => listLocations(cwd, { path }));
    await send({ sessionUpdate: 'tool_call_update', toolCallId: call, kind: 'edit', locations });
    const files = worker === null ? [] : await parts.readChangedFiles(worker);
    if (files.length > 0) await sendCallContent(call, { diffs: toDiffContent(cwd, files) });
  }

  async function completeWorker(call: string, success: boolean, changes: Changes): Promise<void> {
    await showAppliedChanges(call, changes);
    if (runsOn(call, true)) {
      await completeToolCall(call, success);
      contents.forget(call);
    }
    await sendIfAny(plan.setStatus(call, 'completed'));
  }

  async function completeToolCall(id: string, success: boolean): Promise<void> {
    const call = calls.get(id);
    if (call?.done === true) return;
    if (call !== undefined) call.done = true;
    await send({ sessionUpdate: 'tool_call_update', toolCallId: id, status: success ? 'completed' : 'failed' });
  }

  function recordUsage(model: string, usage: Usage): void {
    const { input_tokens, cached_input_tokens, cache_creation_input_tokens, output_tokens } = usage;
    used = input_tokens + cached_input_tokens + cache_creation_input_tokens + output_tokens;
    size = windowOf(model);
  }

  function sendUsageUpdate(): Promise<void> {
    const exact = fromPusd(cost);
    return send({
      sessionUpdate: 'usage_update',
      used,
      size,
      cost: { amount: Number(exact), currency: 'USD' },
      _meta: { metis: { cost_usd: exact } },
    });
  }

  async function sendMessage({ id, session_id, role, content, metadata }: Message): Promise<void> {
    const { model, usage } = metadata;
    if (session_id === session && model !== null && usage !== null) recordUsage(model, usage);
    if (role === 'assistant' && metadata.status === 'complete') await sendContent(session_id, id, content, true);
    if (role === 'tool') await sendResult(content[0], metadata.parent_tool_use_id);
    if (session_id === session) lastMessage = id;
  }

  async function sendResult(block: ContentBlock | undefined, call: string | null): Promise<void> {
    if (block?.type !== 'tool_result' || call === null || results.has(call)) return;
    results.add(call);
    if (!runsOn(call, !block.is_error)) await completeToolCall(call, !block.is_error);
    else if (calls.get(call)?.done === true) return;
    const text = joinText(block.content as readonly ContentBlock[]);
    await sendCallContent(call, { text });
    if (!runsOn(call, !block.is_error)) contents.forget(call);
  }

  return {
    start({ session: { cost_so_far_usd, workers_cost_usd } }) {
      cost = (toPusd(cost_so_far_usd) + toPusd(workers_cost_usd)) as Pusd;
    },
    async event(event) {
      const own = event.session_id === session;
      switch (event.type) {
        case 'message.start': {
          const { message_id, content } = event.payload;
          return sendContent(event.session_id, message_id, content, false);
        }
        case 'text.delta':
        case 'thinking.delta': {
          const { message_id, content_block_index: index, text } = event.payload;
          if (own) await sendChunk(message_id, index, event.type === 'thinking.delta', text);
          return;
        }
        case 'tool.use_start':
          names.set(event.payload.tool_use_id, event.payload.tool_name);
          return;
        case 'tool.use_end': {
          const { tool_use_id: id, final_input } = event.payload;
          const name = names.get(id);
          if (name !== undefined) await sendToolCall(event.session_id, id, name, final_input);
          return;
        }
        case 'message.complete':
          return sendContent(event.session_id, event.payload.message_id, event.payload.final_content, true);
        case 'message.appended': {
          const { message } = event.payload;
          if (message.role === 'tool') await sendResult(message.content[0], message.metadata.parent_tool_use_id);
          return;
        }
        case 'tool.called': {
          const { tool_use_id: id, tool_name, side_effects } = event.payload;
          return send({
            sessionUpdate: 'tool_call_update',
            toolCallId: id,
            status: 'in_progress',
            kind: getToolKind(tool_name, side_effects),
          });
        }
        case 'tool.completed':
          if (runsOn(event.payload.tool_use_id, event.payload.success)) return;
          return completeToolCall(event.payload.tool_use_id, event.payload.success);
        case 'tool.failed':
        case 'tool.input_invalid':
          return completeToolCall(event.payload.tool_use_id, false);
        case 'delegate.started': {
          const { worker_session_id, tool_use_id } = event.payload;
          return showWorker(worker_session_id, tool_use_id, event.payload);
        }
        case 'delegate.completed':
        case 'delegate.failed':
          return completeWorker(event.payload.tool_use_id, event.type === 'delegate.completed', event.payload);
        case 'llm.call_completed': {
          const { payload } = event;
          cost = (cost + toPusd(payload.cost_usd)) as Pusd;
          if (own) recordUsage(payload.model, payload);
          return sendUsageUpdate();
        }
        default:
      }
    },
    message: sendMessage,
    worker: replayWorker,
    completeWorker,
    sendUsage: async () => {
      if (used > 0 || cost > ZERO_PUSD) await sendUsageUpdate();
    },
    hasSent: (message) => message === null || whole.has(message),
    skip: (message) => {
      lastMessage = message;
    },
    through: () => lastMessage,
  };
}
