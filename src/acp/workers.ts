// The workers of a session as an editor shows them: labels, and a plan where several were asked for at once (19 §4).
import type { PlanEntry, SessionUpdate } from '@agentclientprotocol/sdk';
import type { ContentBlock } from './message.ts';
import { oneLine } from './tool-calls.ts';

export interface WorkerLabel {
  /** The call that it works for. */
  readonly call: string;
  /** `fast 2`. */
  readonly label: string;
}

export interface Workers {
  /** @param what tier or name */
  started(worker: string, call: string, what: string): WorkerLabel;
  of(session: string): WorkerLabel | null;
}

export function createWorkerLabels(): Workers {
  const known = new Map<string, WorkerLabel>();
  return {
    started(worker, call, what) {
      const label = known.get(worker) ?? { call, label: `${what} ${known.size + 1}` };
      known.set(worker, label);
      return label;
    },
    of: (session) => known.get(session) ?? null,
  };
}

type Status = PlanEntry['status'];

export interface PlanOfWorkers {
  /** Null where there is nothing to plan. */
  begins(content: readonly ContentBlock[]): SessionUpdate | null;
  moved(call: string, status: Status): SessionUpdate | null;
}

/** An entry for each delegation of the newest message that has several. */
export function createPlan(): PlanOfWorkers {
  let entries = new Map<string, PlanEntry>();
  const shown = (): SessionUpdate => ({ sessionUpdate: 'plan', entries: [...entries.values()] });
  return {
    begins(content) {
      const calls = content.filter((block) => block.type === 'tool_use' && block.name === 'delegate');
      if (calls.length < 2 || calls.every((block) => block.type === 'tool_use' && entries.has(block.id))) return null;
      entries = new Map();
      for (const block of calls)
        if (block.type === 'tool_use')
          entries.set(block.id, {
            content: oneLine(String(block.input.task ?? 'a task')),
            priority: 'medium',
            status: 'pending',
          });
      return shown();
    },
    moved(call, status) {
      const entry = entries.get(call);
      if (entry === undefined || entry.status === status) return null;
      entries.set(call, { ...entry, status });
      return shown();
    },
  };
}
