// A session and its workers as a person watches them: the fold of the event stream, one node a session.
import type { Session } from '#client/client.ts';
import type { StoredEvent, TransientEvent } from '#client/stream-items.ts';
import { type Pusd, sumPusd, toPusd, ZERO_PUSD } from '#protocol/money.ts';
import { nameReference } from '#protocol/text/model-reference.ts';
import { isSimulated } from '#protocol/text/simulated.ts';
import { toPrintable } from './printable-text.ts';

export type NodeState = 'waiting' | 'running' | 'completed' | 'failed' | 'cancelled';

export interface TreeNode {
  readonly session_id: string;
  /** `planner`, `worker 1`, ... in order of creation; a named worker by its name. */
  readonly label: string;
  readonly depth: number;
  state: NodeState;
  model: string;
  /** What it does right now: `thinking`, `writing`, a tool's name, ... */
  doing: string;
  /** Prompt tokens of all its calls, cached ones included. */
  input_tokens: number;
  output_tokens: number;
  cost: Pusd;
  calls: number;
  /** Calls of a model without a price. */
  unpriced_calls: number;
  /** Of its turn, Unix milliseconds; null before and while it runs. */
  started_at: number | null;
  ended_at: number | null;
  /** Tool calls that run, by id: the tool, and what it works on where the model's words for it were seen. */
  readonly tools: Map<string, { readonly name: string; readonly about: string }>;
  /** What calls work on that have not begun. */
  readonly announced: Map<string, string>;
  /** Approvals it asks for, by id: the tool. */
  readonly asks: Map<string, string>;
}

export interface SessionTree {
  /** Depth first, in order of creation. */
  readonly nodes: readonly TreeNode[];
  /** Applies one event. Returns a sentence for people who read line by line, or null when it is nothing to report. */
  apply(event: StoredEvent | TransientEvent): string | null;
}

/** What is known of the first session before its events. */
export interface TreeRoot {
  /** The worker that it is; null = a planner. */
  readonly worker_name: string | null;
  /** Outside `interactive`, approvals are not reported. */
  readonly approval_mode: Session['approval_mode'];
}

export function createSessionTree(
  rootSessionId: string,
  { worker_name: rootName, approval_mode }: TreeRoot = { worker_name: null, approval_mode: 'interactive' },
): SessionTree {
  const nodes: TreeNode[] = [newNode(rootSessionId, rootName ?? 'planner', 0)];
  const findNode = (id: string) => nodes.find((node) => node.session_id === id);
  /** Calls that needed approval, by id: the tool. */
  const asked = new Map<string, string>();

  function addWorker(id: string, { parent_session_id, worker_name }: Created): TreeNode {
    const known = findNode(id);
    if (known) return known;
    const parentAt = nodes.findIndex((node) => node.session_id === parent_session_id);
    const parent = nodes[parentAt] ?? nodes[0]!;
    const node = newNode(id, `${worker_name ?? 'worker'} ${nodes.length}`, parent.depth + 1);
    let at = Math.max(parentAt, 0) + 1;
    while (at < nodes.length && nodes[at]!.depth > parent.depth) at++;
    nodes.splice(at, 0, node);
    return node;
  }

  return {
    nodes,
    apply(event) {
      if (event.type === 'session.created' && event.payload.is_worker) {
        addWorker(event.session_id, event.payload);
        return null;
      }
      if (event.type === 'delegate.checked') {
        const worker = findNode(event.payload.worker_session_id);
        return worker ? applyCheck(worker, event.payload) : null;
      }
      if (event.type === 'delegate.delivered') {
        const worker = findNode(event.payload.worker_session_id);
        return worker ? applyDelivery(worker) : null;
      }
      const node = findNode(event.session_id);
      const line = node ? applyToNode(node, event) : null;
      // A turn does not end before its workers: an answer that calls nothing waits for them.
      const isAnswer = event.type === 'llm.call_completed' && event.payload.stop_reason !== 'tool_use';
      if (node && isAnswer && isWaitedFor(nodes, node)) node.doing = 'waits for its workers';
      if (event.type === 'tool.confirmation_requested') {
        const { tool_use_id, tool_use_ids = [], tool_name } = event.payload;
        for (const id of [tool_use_id, ...tool_use_ids]) asked.set(id, tool_name);
        if (approval_mode !== 'interactive') return null;
      }
      if (event.type === 'tool.failed' && event.payload.error_class === 'user_denied')
        return describeDenial(asked.get(event.payload.tool_use_id), approval_mode);
      return line;
    },
  };
}

/** Why a call was not run that needs approval; `tool` is undefined where a rule denies the call unasked. */
function describeDenial(tool: string | undefined, approval_mode: Session['approval_mode']): string {
  if (tool === undefined) return 'a call is denied by policy';
  if (approval_mode === 'strict') return `${tool} needs approval and there is no terminal to ask at`;
  return `${tool} was denied`;
}

type Created = Pick<Extract<StoredEvent, { type: 'session.created' }>['payload'], 'parent_session_id' | 'worker_name'>;

function newNode(session_id: string, label: string, depth: number): TreeNode {
  return {
    session_id,
    label,
    depth,
    state: 'waiting',
    model: '',
    doing: '',
    input_tokens: 0,
    output_tokens: 0,
    cost: ZERO_PUSD,
    calls: 0,
    unpriced_calls: 0,
    started_at: null,
    ended_at: null,
    tools: new Map(),
    announced: new Map(),
    asks: new Map(),
  };
}

function applyToNode(node: TreeNode, event: StoredEvent | TransientEvent): string | null {
  switch (event.type) {
    case 'turn.started':
      node.state = 'running';
      node.started_at = Date.parse(event.timestamp);
      node.ended_at = null;
      return null;
    case 'turn.resumed':
      return 'goes on';
    case 'delegate.started': {
      const { allowed_tool_count, dropped_tools, worker_name } = event.payload;
      // Tools that the planner did not name are left out of every worker of its kind.
      if (allowed_tool_count === null || dropped_tools.length === 0) return null;
      return `${worker_name ?? 'a worker'} does not get ${dropped_tools.map(toPrintable).join(', ')}`;
    }
    case 'route.decided':
      node.model = nameReference(event.payload.chosen_model, event.payload.chosen_effort);
      if (isSimulated(node.model)) return `started on ${node.model}, which is simulated`;
      return `started on ${node.model}`;
    case 'llm.call_started':
      node.doing = 'thinking';
      return null;
    case 'text.delta':
      node.doing = 'writing';
      return null;
    case 'tool.use_start':
      node.doing = `→ ${event.payload.tool_name}`;
      return null;
    case 'tool.use_end':
      node.announced.set(event.payload.tool_use_id, describeInput(event.payload.final_input));
      return null;
    case 'llm.call_completed': {
      const { payload } = event;
      node.input_tokens += payload.input_tokens + payload.cached_input_tokens + payload.cache_creation_input_tokens;
      node.output_tokens += payload.output_tokens;
      node.cost = sumPusd([node.cost, toPusd(payload.cost_usd)]);
      node.calls++;
      if (payload.priced === false) node.unpriced_calls++;
      return null;
    }
    case 'llm.call_failed':
      return `call failed: ${event.payload.error_class}`;
    case 'budget.exceeded':
      node.doing = 'over its budget';
      return `would go over its budget: $${event.payload.spent_usd} of $${event.payload.limit_usd} spent`;
    case 'tool.confirmation_requested':
      node.asks.set(event.payload.confirmation_request_id, event.payload.tool_name);
      showTools(node);
      return `asks for approval of ${event.payload.tool_name}: ${event.payload.input_summary}`;
    case 'tool.confirmation_resolved':
      node.asks.delete(event.payload.confirmation_request_id);
      showTools(node);
      return null;
    case 'tool.called': {
      const { tool_use_id, tool_name } = event.payload;
      node.tools.set(tool_use_id, { name: tool_name, about: node.announced.get(tool_use_id) ?? '' });
      node.announced.delete(tool_use_id);
      showTools(node);
      return `runs ${tool_name}`;
    }
    case 'tool.completed':
    case 'tool.failed':
    case 'tool.input_invalid': {
      const { tool_use_id } = event.payload;
      const name = node.tools.get(tool_use_id)?.name ?? 'a tool';
      node.tools.delete(tool_use_id);
      node.announced.delete(tool_use_id);
      showTools(node);
      if (event.type === 'tool.failed') return `${name} failed: ${event.payload.error_class}`;
      if (event.type === 'tool.completed' && !event.payload.success) return `${name} reports a failure`;
      return null;
    }
    case 'turn.completed':
      if (event.payload.stop_reason === 'budget_exceeded') return finishNode(node, event, 'completed', 'over budget');
      return finishNode(node, event, 'completed', 'done');
    case 'turn.failed':
      return finishNode(node, event, 'failed', `failed: ${event.payload.error_code}`);
    case 'turn.cancelled':
      return finishNode(node, event, 'cancelled', `cancelled: ${event.payload.reason}`);
    default:
      return null;
  }
}

/** Whether a worker below the node has not ended. */
function isWaitedFor(nodes: readonly TreeNode[], { session_id, depth }: TreeNode): boolean {
  const below = nodes.slice(nodes.findIndex((node) => node.session_id === session_id) + 1);
  const next = below.findIndex((node) => node.depth <= depth);
  return below.slice(0, next < 0 ? below.length : next).some(({ ended_at }) => ended_at === null);
}

/** The result of a background worker is in its caller's history: reported once, perhaps long after its end. */
function applyDelivery(worker: TreeNode): string {
  worker.doing = `${worker.doing}, read`;
  return `reads the result of ${worker.label}`;
}

/** The worker has ended its turn before; a failed check may give it another. */
function applyCheck(
  node: TreeNode,
  { check, passed, attempt }: Extract<StoredEvent, { type: 'delegate.checked' }>['payload'],
): string {
  const outcome = `check ${check} ${passed ? 'passed' : 'failed'}`;
  node.doing = outcome;
  node.state = passed ? 'completed' : 'failed';
  return `${node.label}: ${outcome}, attempt ${attempt}`;
}

function finishNode(node: TreeNode, event: { readonly timestamp: string }, state: NodeState, doing: string): string {
  node.state = state;
  node.doing = doing;
  node.ended_at = Date.parse(event.timestamp);
  for (const held of [node.tools, node.announced, node.asks]) held.clear();
  return doing;
}

function showTools(node: TreeNode): void {
  const [asked] = node.asks.values();
  const running = [...node.tools.values()];
  const [first] = running;
  if (asked !== undefined) node.doing = `asks: ${asked}`;
  else if (first === undefined) node.doing = 'thinking';
  else if (running.length === 1) node.doing = `${first.name} ${first.about}`.trimEnd();
  else if (running.every(({ name }) => name === first.name)) node.doing = `${first.name} ×${running.length}`;
  else node.doing = `${running.length} tools`;
}

const SUBJECTS = ['path', 'command', 'pattern', 'task', 'name', 'query', 'url'];
const MAX_SUBJECT = 120;

/** The argument that best describes what a call works on. */
function describeInput(input: Readonly<Record<string, unknown>>): string {
  const text = SUBJECTS.map((name) => input[name]).find((value) => typeof value === 'string' && value !== '');
  if (typeof text === 'string') return toPrintable(text.slice(0, MAX_SUBJECT));
  return '';
}
