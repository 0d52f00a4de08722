// A session and its workers as a person watches them: the fold of the event stream, one node a session.
import type { StoredEvent, TransientEvent } from '../client/events.ts';
import { type Pusd, sumPusd, toPusd, ZERO_PUSD } from '../kernel/money.ts';

export type NodeState = 'waiting' | 'running' | 'completed' | 'failed' | 'cancelled';

export interface TreeNode {
  readonly session_id: string;
  /** `planner`, `worker 1`, ... in order of creation. */
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
  readonly tools: Map<string, string>;
}

export interface SessionTree {
  /** Depth first, in order of creation. */
  readonly nodes: readonly TreeNode[];
  /** Applies one event. Returns a sentence for people who read line by line, or null when it is nothing to report. */
  apply(event: StoredEvent | TransientEvent): string | null;
}

export function createSessionTree(rootSessionId: string): SessionTree {
  const nodes: TreeNode[] = [newNode(rootSessionId, 'planner', 0)];
  const find = (id: string) => nodes.find((node) => node.session_id === id);

  function addWorker(id: string, parentId: string | null): TreeNode {
    const known = find(id);
    if (known) return known;
    const parentAt = nodes.findIndex((node) => node.session_id === parentId);
    const parent = nodes[parentAt] ?? nodes[0]!;
    const node = newNode(id, `worker ${nodes.length}`, parent.depth + 1);
    let at = Math.max(parentAt, 0) + 1;
    while (at < nodes.length && nodes[at]!.depth > parent.depth) at++;
    nodes.splice(at, 0, node);
    return node;
  }

  return {
    nodes,
    apply(event) {
      if (event.type === 'session.created' && event.payload.is_worker) {
        addWorker(event.session_id, event.payload.parent_session_id);
        return null;
      }
      const node = find(event.session_id);
      return node ? applyToNode(node, event) : null;
    },
  };
}

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
    tools: new Map(),
  };
}

function applyToNode(node: TreeNode, event: StoredEvent | TransientEvent): string | null {
  switch (event.type) {
    case 'turn.started':
      node.state = 'running';
      return null;
    case 'route.decided':
      node.model = event.payload.chosen_model;
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
    case 'llm.call_completed': {
      const { payload } = event;
      node.input_tokens += payload.input_tokens + payload.cached_input_tokens + payload.cache_creation_input_tokens;
      node.output_tokens += payload.output_tokens;
      node.cost = sumPusd([node.cost, toPusd(payload.cost_usd)]);
      return null;
    }
    case 'llm.call_failed':
      return `call failed: ${event.payload.error_class}`;
    case 'tool.confirmation_requested':
      node.doing = `asks: ${event.payload.tool_name}`;
      return `asks for approval of ${event.payload.tool_name}: ${event.payload.input_summary}`;
    case 'tool.called':
      node.tools.set(event.payload.tool_use_id, event.payload.tool_name);
      showTools(node);
      return `runs ${event.payload.tool_name}`;
    case 'tool.completed':
    case 'tool.failed':
    case 'tool.input_invalid': {
      const name = node.tools.get(event.payload.tool_use_id) ?? 'a tool';
      node.tools.delete(event.payload.tool_use_id);
      showTools(node);
      if (event.type === 'tool.failed') return `${name} failed: ${event.payload.error_class}`;
      return event.type === 'tool.completed' && !event.payload.success ? `${name} reports a failure` : null;
    }
    case 'turn.completed':
      return finish(node, 'completed', 'done');
    case 'turn.failed':
      return finish(node, 'failed', `failed: ${event.payload.error_code}`);
    case 'turn.cancelled':
      return finish(node, 'cancelled', `cancelled: ${event.payload.reason}`);
    default:
      return null;
  }
}

function finish(node: TreeNode, state: NodeState, doing: string): string {
  node.state = state;
  node.doing = doing;
  node.tools.clear();
  return doing;
}

function showTools(node: TreeNode): void {
  const names = [...node.tools.values()];
  const [first] = names;
  if (first === undefined) node.doing = 'thinking';
  else if (names.every((name) => name === first)) node.doing = names.length > 1 ? `${first} ×${names.length}` : first;
  else node.doing = `${names.length} tools`;
}
