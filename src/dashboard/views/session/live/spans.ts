// The bars of a timeline: what began and ended in a turn, from its events.
import type { EventList } from '#client/client.ts';

export type TimelineEvent = EventList['events'][number];

type Round = Extract<TimelineEvent, { readonly type: 'llm.call_completed' }>['payload']['rounds'][number];

export interface Bar {
  readonly id: string;
  readonly kind: 'turn' | 'model' | 'tool' | 'delegation' | 'approval';
  readonly session_id: string;
  /** `planner`, `worker 1`, … */
  readonly session: string;
  label: string;
  /** Unix milliseconds. */
  readonly start: number;
  end: number | null;
  failed: boolean;
}

/** Session by session, each in the order of their beginnings. What has not ended yet has `end` null. `labels` names the sessions; a worker that it does not know, as of a gateway's client, has the name of its beginning. */
export function buildSpans(events: readonly TimelineEvent[], labels: ReadonlyMap<string, string>): Bar[] {
  const bars: Bar[] = [];
  const open = new Map<string, Bar>();
  const named = new Map(labels);
  const beginBar = (event: TimelineEvent, kind: Bar['kind'], key: string, label: string) => {
    const bar: Bar = {
      id: event.id,
      kind,
      session_id: event.session_id,
      session: named.get(event.session_id) ?? 'worker',
      label,
      start: Date.parse(event.timestamp),
      end: null,
      failed: false,
    };
    bars.push(bar);
    open.set(`${kind} ${key}`, bar);
  };
  const endBar = (event: TimelineEvent, kind: Bar['kind'], key: string, failed = false) => {
    const bar = open.get(`${kind} ${key}`);
    if (bar === undefined) return;
    bar.end = Date.parse(event.timestamp);
    bar.failed = failed;
    open.delete(`${kind} ${key}`);
  };

  for (const event of events) {
    switch (event.type) {
      case 'session.created':
        if (event.payload.worker_name !== null && !named.has(event.session_id))
          named.set(event.session_id, event.payload.worker_name);
        break;
      case 'turn.started':
        beginBar(event, 'turn', event.session_id, 'turn');
        break;
      case 'turn.completed':
        endBar(event, 'turn', event.session_id);
        break;
      case 'turn.failed':
      case 'turn.cancelled':
        endBar(event, 'turn', event.session_id, event.type === 'turn.failed');
        break;
      case 'llm.call_started':
        beginBar(event, 'model', event.payload.request_id, event.payload.model);
        break;
      case 'llm.call_completed':
        nameRounds(open.get(`model ${event.payload.request_id}`), event.payload.rounds);
        endBar(event, 'model', event.payload.request_id);
        break;
      case 'llm.call_failed':
        endBar(event, 'model', event.payload.request_id, true);
        break;
      case 'tool.confirmation_requested':
        beginBar(event, 'approval', event.payload.confirmation_request_id, `approval of ${event.payload.tool_name}`);
        break;
      case 'tool.confirmation_resolved':
        endBar(event, 'approval', event.payload.confirmation_request_id, event.payload.decision === 'reject');
        break;
      case 'tool.called':
        beginBar(event, 'tool', event.payload.tool_use_id, event.payload.tool_name);
        break;
      case 'tool.completed':
        endBar(event, 'tool', event.payload.tool_use_id, !event.payload.success);
        break;
      case 'tool.failed':
        endBar(event, 'tool', event.payload.tool_use_id, true);
        break;
      default:
    }
  }
  const order = [...new Set(bars.map(({ session_id }) => session_id))];
  return bars.sort((a, b) => order.indexOf(a.session_id) - order.indexOf(b.session_id) || a.start - b.start);
}

/** Adds the rounds of a call that has several: `message $0.06, advisor_message claude-opus-5 $0.05`. */
function nameRounds(bar: Bar | undefined, rounds: readonly Round[] = []): void {
  if (bar === undefined || rounds.length === 0) return;
  const names = rounds.map(({ kind, model, cost_usd, billed }) => {
    const cost = (billed && `$${cost_usd}`) || 'not billed';
    return [kind, ...[model].filter((other) => other !== bar.label), cost].join(' ');
  });
  bar.label = `${bar.label} · ${rounds.length} rounds: ${names.join(', ')}`;
}
