// A session of the tree as one watches it: what it does, what it has used, since when.
import type { Confirmation, Delegation, Message, Session, StoredEvent, StreamEvent } from '#client/client.ts';
import { summarizeInput } from '#dashboard/format/format.ts';
import { type Pusd, sumPusd, toPusd } from '#protocol/money.ts';
import { compareText } from '#protocol/text/compare-text.ts';
import { nameReference } from '#protocol/text/model-reference.ts';
import type { Block, OpenMessage } from './open-message.ts';

export interface LiveNode {
  readonly session_id: string;
  readonly parent_session_id: string | null;
  readonly depth: number;
  /** `planner`, `worker 1`, the name of a named worker: the same in every tab. */
  label: string;
  readonly worker_name: string | null;
  /** The call that began it. */
  readonly tool_use_id: string | null;
  readonly is_worker: boolean;
  readonly task: string | null;
  tier: string | null;
  state: string;
  model: string | null;
  /** What it does right now; '' when nothing. */
  doing: string;
  /** All input classes. */
  input_tokens: number;
  output_tokens: number;
  cost: Pusd;
  started_at: string;
  ended_at: string | null;
  turn_id: string | null;
  /** The end of what it wrote and called. */
  tail: string;
  /** The message that is being written, the tail before it, and whether it calls tools: then it is no answer. */
  writing: { readonly message_id: string; readonly before: string; calls: boolean } | null;
  /** The connection broke: something that it wrote may not have been heard. */
  missed: boolean;
  /** Running tool calls: id → name. */
  readonly tools: Map<string, string>;
  /** Tool calls whose input is still being written: id → name. */
  readonly called: Map<string, string>;
}

const TAIL = 1200;

export function rootNode(session: Session, tail: string): LiveNode {
  return {
    session_id: session.id,
    parent_session_id: null,
    depth: 0,
    label: session.is_worker ? (session.worker_name ?? 'worker') : 'planner',
    worker_name: session.worker_name,
    tool_use_id: session.parent_tool_use_id,
    is_worker: session.is_worker,
    task: session.task,
    tier: null,
    state: session.status,
    model: session.last_model === null ? session.active_model : nameReference(session.last_model, session.last_effort),
    doing: '',
    input_tokens: 0,
    output_tokens: 0,
    cost: toPusd(session.cost_so_far_usd),
    started_at: session.created_at,
    ended_at: session.status === 'running' ? null : session.updated_at,
    turn_id: session.current_turn_id,
    tail: tail.slice(-TAIL),
    writing: null,
    missed: false,
    tools: new Map(),
    called: new Map(),
  };
}

export function workerNode(delegation: Delegation, depth: number): LiveNode {
  const { usage_summary: used } = delegation;
  return {
    session_id: delegation.worker_session_id ?? '',
    parent_session_id: delegation.parent_session_id,
    depth,
    label: delegation.worker_name ?? 'worker',
    worker_name: delegation.worker_name,
    tool_use_id: delegation.tool_use_id,
    is_worker: true,
    task: null,
    tier: delegation.tier,
    state: getDelegationState(delegation),
    model: used.model || delegation.resolved_model,
    doing: '',
    input_tokens: used.input_tokens,
    output_tokens: used.output_tokens,
    cost: toPusd(used.cost_usd),
    started_at: delegation.created_at,
    ended_at: delegation.ended_at,
    turn_id: null,
    tail: typeof delegation.output === 'string' ? delegation.output.slice(-TAIL) : '',
    writing: null,
    missed: false,
    tools: new Map(),
    called: new Map(),
  };
}

/** Labels the workers below a session: by name, else by a number through the whole tree, in the order of the calls that began them. */
export function labelWorkers(nodes: readonly LiveNode[]): void {
  const workers = nodes.filter(({ depth }) => depth > 0);
  workers.sort((a, b) => compareText(a.tool_use_id ?? LAST, b.tool_use_id ?? LAST));
  for (const [i, node] of workers.entries()) node.label = node.worker_name ?? `worker ${i + 1}`;
}
/** Behind every id. */
const LAST = '~';

/** What it cost with all workers below it, at any depth; null where there are none. */
export function costWithWorkers(nodes: readonly LiveNode[], { session_id, cost }: LiveNode): Pusd | null {
  const below = new Set([session_id]);
  // Each comes after its planner in the list.
  const workers = nodes.filter((node) => {
    const is = node.parent_session_id !== null && below.has(node.parent_session_id);
    if (is) below.add(node.session_id);
    return is;
  });
  if (workers.length === 0) return null;
  return sumPusd([cost, ...workers.map((node) => node.cost)]);
}

/** `cancelled` where a user cancelled the delegation. */
export function getDelegationState({ status, failure_mode }: Pick<Delegation, 'status' | 'failure_mode'>): string {
  if (failure_mode === 'cancelled_by_user') return 'cancelled';
  return status;
}

export function applyToNode(node: LiveNode, event: StreamEvent): void {
  switch (event.type) {
    case 'turn.started':
      Object.assign(node, { state: 'running', turn_id: event.turn_id, ended_at: null, doing: 'starting' });
      // A planner's clock is its turn's, a worker's the delegation's.
      if (!node.is_worker) node.started_at = event.timestamp;
      return;
    case 'turn.resumed':
      Object.assign(node, { state: 'running', turn_id: event.turn_id, ended_at: null });
      return;
    case 'route.decided':
      if (event.payload.chosen_model !== '')
        node.model = nameReference(event.payload.chosen_model, event.payload.chosen_effort);
      return;
    case 'llm.call_started':
      node.doing = 'thinking';
      return;
    case 'message.start': {
      const { message_id, content, open_tool_inputs } = event.payload;
      const open = new Set(open_tool_inputs.map(({ content_block_index: at }) => at));
      for (const { tool_use_id, tool_name } of open_tool_inputs) node.called.set(tool_use_id, tool_name);
      writeMessage(
        node,
        message_id,
        content.filter((_, at) => !open.has(at)),
      );
      return;
    }
    case 'message.complete': {
      const { message_id, final_content } = event.payload;
      if (final_content.length > 0) writeMessage(node, message_id, final_content);
      node.writing = null;
      return;
    }
    case 'text.delta':
    case 'thinking.delta':
      node.doing = event.type === 'text.delta' ? 'writing' : 'thinking';
      appendTail(node, event.payload.text);
      return;
    case 'tool.use_start':
      node.doing = `calls ${event.payload.tool_name}`;
      node.called.set(event.payload.tool_use_id, event.payload.tool_name);
      if (node.writing !== null) node.writing.calls = true;
      return;
    case 'tool.use_end': {
      const { tool_use_id, final_input } = event.payload;
      const name = node.called.get(tool_use_id);
      node.called.delete(tool_use_id);
      if (name !== undefined) appendTail(node, onNewLine(node.tail, calledWith(name, final_input)));
      return;
    }
    case 'llm.call_completed': {
      const { payload } = event;
      node.input_tokens += payload.input_tokens + payload.cached_input_tokens + payload.cache_creation_input_tokens;
      node.output_tokens += payload.output_tokens;
      node.cost = sumPusd([node.cost, toPusd(payload.cost_usd)]);
      return;
    }
    case 'tool.confirmation_requested':
      node.doing = `asks for ${event.payload.tool_name}`;
      return;
    case 'tool.called':
      node.tools.set(event.payload.tool_use_id, event.payload.tool_name);
      node.doing = describeTools(node);
      return;
    case 'tool.completed':
    case 'tool.failed':
    case 'tool.input_invalid':
      node.tools.delete(event.payload.tool_use_id);
      node.doing = describeTools(node);
      return;
    case 'turn.completed':
      endNode(node, node.is_worker ? 'completed' : 'idle', event.timestamp);
      return;
    case 'turn.failed':
      endNode(node, 'failed', event.timestamp);
      return;
    case 'turn.cancelled':
      endNode(node, 'cancelled', event.timestamp);
      return;
    default:
  }
}

/** Its answer, from the record of its delegation, where what it wrote was not heard to its end. */
export function takeOutput(node: LiveNode, output: string): void {
  const end = output.slice(-TAIL);
  if ((node.tail === '' || node.missed) && !node.tail.endsWith(end)) {
    if (node.writing?.calls === false) node.tail = node.writing.before;
    appendTail(node, onNewLine(node.tail, end));
  }
  node.writing = null;
  node.missed = false;
}

/** The end of what messages say and call, for a pane of a few lines. */
export function formatTail(messages: readonly Message[]): string {
  const written = messages.filter(({ role }) => role === 'assistant').flatMap(({ content }) => content);
  return written.flatMap(getBlockText).join('\n').slice(-TAIL);
}

/** What it wrote before it was followed goes in front of what it has written since. */
export function takeTail(node: LiveNode, tail: string): void {
  const { writing } = node;
  if (tail.endsWith(node.tail)) {
    node.tail = tail;
    return;
  }
  // A message that ended meanwhile may be in both.
  if (writing === null || writing.before !== '') return;
  const written = node.tail;
  node.writing = { ...writing, before: tail };
  node.tail = tail;
  appendTail(node, onNewLine(tail, written));
}

/** Replaces the held part of a message: a client that connects in its middle gets it whole (06 §4.4). */
function writeMessage(node: LiveNode, message_id: string, content: readonly Block[]): void {
  const before = node.writing?.message_id === message_id ? node.writing.before : node.tail;
  node.writing = { message_id, before, calls: content.some(({ type }) => type === 'tool_use') };
  node.tail = before;
  appendTail(node, onNewLine(before, content.flatMap(getBlockText).join('\n')));
}

function getBlockText(block: Block): string | [] {
  if (block.type === 'tool_use') return calledWith(block.name, block.input);
  if (block.type === 'text' || block.type === 'thinking') return block.text;
  return [];
}

function calledWith(name: string, input: Parameters<typeof summarizeInput>[0]): string {
  return `→ ${name} ${summarizeInput(input)}`;
}

function onNewLine(before: string, text: string): string {
  if (before === '') return text;
  return `\n${text}`;
}

function appendTail(node: LiveNode, text: string): void {
  node.tail = (node.tail + text).slice(-TAIL);
}

function endNode(node: LiveNode, state: string, at: string): void {
  Object.assign(node, { state, ended_at: at, doing: '', turn_id: null });
  node.tools.clear();
}

function describeTools({ tools }: LiveNode): string {
  const names = [...new Set(tools.values())];
  if (names.length === 0) return 'thinking';
  if (names.length === 1) return `runs ${names[0]}${tools.size > 1 ? ` ×${tools.size}` : ''}`;
  return `runs ${tools.size} tools`;
}

// What is known of a session with its workers while one watches it.

export type Route = Extract<StoredEvent, { type: 'route.decided' }>['payload'];

/** A limit that refused a call. */
export type Refusal = Extract<StoredEvent, { type: 'budget.exceeded' }>['payload'];

export interface ToolState {
  status: 'running' | 'waiting' | 'done' | 'failed';
  detail: string;
}

/** The identity of a delegation: from its record, or from its start event until the record is loaded. */
export interface WorkerCall {
  readonly tool_use_id: string;
  readonly worker_session_id: string | null;
  readonly tier: string | null;
  readonly model: string | null;
  readonly dropped_tools: readonly string[];
  readonly record: Delegation | null;
}

export interface LiveSession {
  readonly id: string;
  session: Session | null;
  /** Ascending, without holes. */
  messages: Message[];
  hasOlder: boolean;
  /** The newest message before the connection broke: behind it some may be missing. Null: none is. */
  wholeUpTo: string | null;
  readonly open: Map<string, OpenMessage>;
  /** The session first, each worker behind its planner. */
  nodes: LiveNode[];
  readonly calls: Map<string, WorkerCall>;
  readonly confirmations: Map<string, Confirmation>;
  readonly tools: Map<string, ToolState>;
  /** Calls that ran with arguments of a person. */
  readonly edits: Set<string>;
  /** By turn, as far as they were decided while one watched. */
  readonly routes: Map<string, Route>;
  /** The newest one of the session, as far as one came while one watched. */
  refusal: Refusal | null;
  /** Bumped with every change of what is stored. */
  version: number;
  /** Grows with each beginning, end and score of a turn of the session itself, and with each snapshot: some may be behind it. */
  turnsSeen: number;
  /** A message was missed, or a turn ended: the newest ones are asked for again. */
  wantsMessages: boolean;
  /** A delegation closed: its record holds the output. */
  wantsWorkers: boolean;
  /** A result states that its call was edited: the list of approvals confirms it. */
  wantsEdits: boolean;
  /** Sessions whose words were not followed: the end of what they wrote is asked for. */
  readonly wantsTails: Set<string>;
}

export function liveSession(id: string): LiveSession {
  return {
    id,
    session: null,
    messages: [],
    hasOlder: false,
    wholeUpTo: null,
    open: new Map(),
    nodes: [],
    calls: new Map(),
    confirmations: new Map(),
    tools: new Map(),
    edits: new Set(),
    routes: new Map(),
    refusal: null,
    version: 0,
    turnsSeen: 0,
    wantsMessages: false,
    wantsWorkers: false,
    wantsEdits: false,
    wantsTails: new Set(),
  };
}
