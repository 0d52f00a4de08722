// Tool calls, workers and plans in the form that an editor displays (19 §4).
import path from 'node:path';
import type { PlanEntry, SessionUpdate, ToolCallContent, ToolCallLocation, ToolKind } from '@agentclientprotocol/sdk';
import type { Message } from '#client/client.ts';

type Input = Readonly<Record<string, unknown>>;

const MAX_TITLE = 100;
/** Of the class of side effects. */
const KINDS: Readonly<Record<string, ToolKind>> = { read: 'read', write: 'edit', execute: 'execute', network: 'fetch' };
/** Before a call has begun its class is known of our own tools alone. */
const CLASSES: Readonly<Record<string, string>> = {
  read_file: 'read',
  list_files: 'read',
  grep: 'read',
  skill_load: 'read',
  write_file: 'write',
  edit_file: 'write',
  shell: 'execute',
  delegate: 'execute',
  worker_call: 'execute',
};

export function kindOf(name: string, sideEffects: string | null = null): ToolKind {
  return KINDS[sideEffects ?? CLASSES[name] ?? ''] ?? 'other';
}

/** `edit_file src/a.ts`: the tool, and the one thing that tells what it is about. */
export function titleOf(name: string, input: Input): string {
  const about = [input.path, input.command, input.pattern, input.task, input.input].find(
    (value) => typeof value === 'string',
  );
  return typeof about === 'string' ? `${name} ${oneLine(about)}` : name;
}

export function oneLine(text: string): string {
  const line = text.trim().split('\n', 1)[0] ?? '';
  return line.length > MAX_TITLE ? `${line.slice(0, MAX_TITLE)}…` : line;
}

export function locationsOf(cwd: string, input: Input): ToolCallLocation[] {
  return typeof input.path === 'string' ? [{ path: path.resolve(cwd, input.path) }] : [];
}

export function textContent(text: string): ToolCallContent[] {
  return text === '' ? [] : [{ type: 'content', content: { type: 'text', text } }];
}

export type ContentBlock = Message['content'][number];

export function textOf(content: readonly ContentBlock[]): string {
  return content.flatMap((block) => (block.type === 'text' ? [block.text] : [])).join('\n');
}

interface WorkerLabel {
  /** The call that it works for. */
  readonly call: string;
  /** `fast 2`. */
  readonly label: string;
}

interface Workers {
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

interface PlanOfWorkers {
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
