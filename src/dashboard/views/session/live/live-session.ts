// A session with its workers as it stands now: the fold of its stream from a snapshot on.
import type {
  Confirmation,
  Delegation,
  Session,
  Snapshot,
  StoredEvent,
  StreamEvent,
  StreamItem,
  TransientEvent,
} from '#client/client.ts';
import { lookForEdits, takeMessages } from './live-messages.ts';
import {
  applyToNode,
  formatTail,
  type LiveNode,
  type LiveSession,
  labelWorkers,
  rootNode,
  takeOutput,
  workerNode,
} from './live-node.ts';
import { applyDelta, buildCompletedMessage } from './open-message.ts';

const SNAPSHOT_MESSAGES = 50;
/** What a session does whose beginning was not followed, by what it waits for. */
const DOING: Readonly<Record<Session['waiting_on'][number]['kind'], string>> = {
  approval: 'asks for approval',
  budget: 'waits for a higher budget',
  model: 'thinking',
  tool: 'runs a tool',
  worker: 'waits for its workers',
  slot: 'waits for a place in the queue',
};

export function applyItem(live: LiveSession, item: StreamItem): void {
  if (item.type === 'snapshot') takeSnapshot(live, item);
  else applyEvent(live, item.event);
}

function takeSnapshot(live: LiveSession, snapshot: Snapshot): void {
  live.session = snapshot.session;
  live.messages = [...snapshot.messages];
  live.hasOlder = snapshot.messages.length >= SNAPSHOT_MESSAGES;
  live.wholeUpTo = null;
  live.open.clear();
  live.nodes = [rootNode(snapshot.session, formatTail(snapshot.messages))];
  live.calls.clear();
  live.tools.clear();
  takeWorkers(live, snapshot.workers ?? []);
  lookForEdits(live, snapshot.messages);
  live.confirmations.clear();
  for (const confirmation of snapshot.pending_confirmations) {
    live.confirmations.set(confirmation.confirmation_request_id, confirmation);
  }
  for (const counted of snapshot.tokens) {
    const node = live.nodes.find(({ session_id }) => session_id === counted.session_id);
    if (node === undefined) continue;
    node.input_tokens = counted.input_tokens + counted.cached_input_tokens + counted.cache_creation_input_tokens;
    node.output_tokens = counted.output_tokens;
  }
  for (const wait of snapshot.session.waiting_on) {
    const node = live.nodes.find(({ session_id }) => session_id === wait.session_id);
    if (node !== undefined) node.doing = DOING[wait.kind];
  }
  for (const node of live.nodes) if (node.tail === '') live.wantsTails.add(node.session_id);
  live.turnsSeen++;
  live.version++;
}

/** Records of delegations, read anew. Nodes that are there keep what they have seen since. */
export function takeWorkers(live: LiveSession, workers: readonly Delegation[]): void {
  for (const record of workers) {
    live.calls.set(record.tool_use_id, {
      tool_use_id: record.tool_use_id,
      worker_session_id: record.worker_session_id,
      tier: record.tier,
      model: record.usage_summary.model || record.resolved_model,
      dropped_tools: record.dropped_tools,
      record,
    });
    if (record.worker_session_id === null) continue;
    const known = live.nodes.find(({ session_id }) => session_id === record.worker_session_id);
    if (known === undefined) {
      insertNode(live, workerNode(record, depthBelow(live, record.parent_session_id)));
    } else if (record.ended_at !== null) {
      if (typeof record.output === 'string') takeOutput(known, record.output);
      // A worker whose delegation closed without an event of its turn, after a restart for one.
      if (known.ended_at === null) Object.assign(known, { ended_at: record.ended_at, state: record.status, doing: '' });
    }
  }
  labelWorkers(live.nodes);
  live.version++;
}

function applyEvent(live: LiveSession, event: StreamEvent): void {
  if (event.type === 'session.created' && event.payload.is_worker) {
    const known = live.nodes.some(({ session_id }) => session_id === event.session_id);
    if (!known) insertNode(live, bornNode(live, event));
    labelWorkers(live.nodes);
  }
  const node = live.nodes.find(({ session_id }) => session_id === event.session_id);
  if (node !== undefined) {
    applyToNode(node, event);
    // A turn does not end before its workers: an answer that calls nothing waits for them.
    const isAnswer = event.type === 'llm.call_completed' && event.payload.stop_reason !== 'tool_use';
    const isBelow = (one: LiveNode) => one.parent_session_id === node.session_id && one.ended_at === null;
    if (isAnswer && live.nodes.some(isBelow)) node.doing = DOING.worker;
  }
  if (event.transient) applyTransient(live, event);
  else applyStored(live, event);
}

function applyTransient(live: LiveSession, event: TransientEvent): void {
  if (applyDelta(live.open, event)) return;
  if (event.type === 'message.appended') {
    if (event.session_id === live.id) takeMessages(live, [event.payload.message]);
  } else if (event.type === 'message.complete') {
    const { message_id, final_content } = event.payload;
    const message = live.open.get(message_id);
    live.open.delete(message_id);
    if (event.session_id === live.id && final_content.length > 0)
      takeMessages(live, [buildCompletedMessage(event, message?.model)]);
    live.version++;
  }
}

function applyStored(live: LiveSession, event: StoredEvent): void {
  live.version++;
  switch (event.type) {
    case 'route.decided':
      if (event.turn_id !== null) live.routes.set(event.turn_id, event.payload);
      return;
    case 'budget.exceeded':
      if (event.session_id === live.id) live.refusal = event.payload;
      return;
    case 'llm.call_completed': {
      const { message_id } = event.payload;
      if (event.session_id !== live.id || message_id === null) return;
      if (!live.messages.some(({ id }) => id === message_id)) live.wantsMessages = true;
      return;
    }
    case 'tool.called':
      live.tools.set(event.payload.tool_use_id, { status: 'running', detail: '' });
      return;
    case 'tool.completed':
      live.tools.set(event.payload.tool_use_id, { status: event.payload.success ? 'done' : 'failed', detail: '' });
      return;
    case 'tool.failed':
      live.tools.set(event.payload.tool_use_id, { status: 'failed', detail: event.payload.error_message });
      return;
    case 'tool.confirmation_requested':
      live.tools.set(event.payload.tool_use_id, { status: 'waiting', detail: '' });
      live.confirmations.set(event.payload.confirmation_request_id, {
        ...event.payload,
        session_id: event.session_id as Session['id'],
        turn_id: (event.turn_id ?? '') as Confirmation['turn_id'],
        requested_at: event.timestamp,
        rule_description: null,
        decision: null,
        scope: null,
        reason: null,
        resolved_by: null,
        resolved_at: null,
      });
      return;
    case 'tool.confirmation_resolved':
      if (event.payload.decision === 'modify') live.edits.add(event.payload.tool_use_id);
      live.confirmations.delete(event.payload.confirmation_request_id);
      return;
    case 'delegate.started': {
      const { tool_use_id, worker_session_id, tier, resolved_model: model, dropped_tools } = event.payload;
      live.calls.set(tool_use_id, { tool_use_id, worker_session_id, tier, model, dropped_tools, record: null });
      const node = live.nodes.find(({ session_id }) => session_id === worker_session_id);
      if (node !== undefined) node.tier = tier;
      return;
    }
    case 'delegate.completed':
    case 'delegate.failed':
      live.wantsWorkers = true;
      return;
    case 'eval.completed':
      if (event.session_id === live.id && event.actor === 'user') live.turnsSeen++;
      return;
    case 'turn.started':
    case 'turn.resumed':
    case 'turn.completed':
    case 'turn.failed':
    case 'turn.cancelled':
      // What was being written is not going on; a message that is will be listed again (06 §5.2).
      for (const [id, message] of live.open) if (message.session_id === event.session_id) live.open.delete(id);
      if (event.session_id === live.id) {
        live.wantsMessages = true;
        live.turnsSeen++;
      }
      return;
    default:
  }
}

type Born = Extract<StoredEvent, { type: 'session.created' }>;

function bornNode(live: LiveSession, event: Born): LiveNode {
  const { parent_session_id: parent, parent_tool_use_id: tool_use_id, worker_name } = event.payload;
  const call = [...live.calls.values()].find(({ worker_session_id }) => worker_session_id === event.session_id);
  return {
    session_id: event.session_id,
    parent_session_id: parent,
    depth: depthBelow(live, parent),
    label: worker_name ?? 'worker',
    worker_name,
    tool_use_id,
    is_worker: true,
    task: null,
    tier: call?.tier ?? null,
    state: 'running',
    model: call?.model ?? null,
    doing: 'starting',
    input_tokens: 0,
    output_tokens: 0,
    cost: 0n as LiveNode['cost'],
    started_at: event.timestamp,
    ended_at: null,
    turn_id: null,
    tail: '',
    writing: null,
    missed: false,
    tools: new Map(),
    called: new Map(),
  };
}

function depthBelow(live: LiveSession, parent: string | null): number {
  return (live.nodes.find(({ session_id }) => session_id === parent)?.depth ?? 0) + 1;
}

/** Behind its planner and the planner's other workers. */
function insertNode(live: LiveSession, node: LiveNode): void {
  const parentAt = live.nodes.findIndex(({ session_id }) => session_id === node.parent_session_id);
  let at = Math.max(parentAt, 0) + 1;
  while (at < live.nodes.length && (live.nodes[at]?.depth ?? 0) >= node.depth) at++;
  live.nodes.splice(at, 0, node);
}
