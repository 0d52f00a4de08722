// Tool calls, workers and plans in the form that an editor displays (19 §4).
import path from 'node:path';
import type { PlanEntry, SessionUpdate, ToolCallContent, ToolCallLocation, ToolKind } from '@agentclientprotocol/sdk';
import type { ChangedTexts, Message } from '#client/client.ts';

type Input = Readonly<Record<string, unknown>>;

const MAX_TITLE = 100;
/** By class of side effects. */
const KINDS: Readonly<Record<string, ToolKind>> = { read: 'read', write: 'edit', execute: 'execute', network: 'fetch' };
/** Before a call has started only the class of built-in tools is known. */
const CLASSES: Readonly<Record<string, string>> = {
  read_file: 'read',
  list_files: 'read',
  grep: 'read',
  skill_load: 'read',
  write_file: 'write',
  edit_file: 'write',
  memory_add: 'write',
  memory_replace: 'write',
  memory_consolidate: 'write',
  worker_create: 'write',
  shell: 'execute',
  delegate: 'execute',
  worker_call: 'execute',
};

export function getToolKind(name: string, sideEffects: string | null = null): ToolKind {
  return KINDS[sideEffects ?? CLASSES[name] ?? ''] ?? 'other';
}

/** `edit_file src/a.ts`: the tool, and the input that identifies its subject. */
export function formatTitle(name: string, input: Input): string {
  const about = [input.path, input.command, input.pattern, input.task, input.input].find(
    (value) => typeof value === 'string',
  );
  if (typeof about !== 'string') return name;
  return `${name} ${toOneLine(about)}`;
}

export function toOneLine(text: string): string {
  const line = text.trim().split('\n', 1)[0] ?? '';
  if (line.length <= MAX_TITLE) return line;
  return `${line.slice(0, MAX_TITLE)}…`;
}

export function listLocations(cwd: string, input: Input): ToolCallLocation[] {
  if (typeof input.path !== 'string') return [];
  return [{ path: path.resolve(cwd, input.path) }];
}

export function toTextContent(text: string): ToolCallContent[] {
  if (text === '') return [];
  return [{ type: 'content', content: { type: 'text', text } }];
}

/** The old and new text of changed files; a deleted file has an empty new one. */
export function toDiffContent(cwd: string, files: ChangedTexts['files']): ToolCallContent[] {
  return files.map(({ path: file, old_text: oldText, new_text }) => ({
    type: 'diff',
    path: path.resolve(cwd, file),
    oldText,
    newText: new_text ?? '',
  }));
}

/** What an editor shows of each tool call: its text and diffs, of which an update replaces all. */
export function createCallContents(): {
  replace(call: string, over: Partial<CallContent>): ToolCallContent[];
  forget(call: string): void;
} {
  const shown = new Map<string, CallContent>();
  return {
    replace(call, over) {
      const now = { ...(shown.get(call) ?? { text: '', diffs: [] }), ...over };
      shown.set(call, now);
      return [...toTextContent(now.text), ...now.diffs];
    },
    forget: (call) => void shown.delete(call),
  };
}

interface CallContent {
  readonly text: string;
  readonly diffs: readonly ToolCallContent[];
}

export type ContentBlock = Message['content'][number];

export function joinText(content: readonly ContentBlock[]): string {
  return content.flatMap((block) => (block.type === 'text' ? [block.text] : [])).join('\n');
}

interface WorkerLabel {
  /** The tool call that opened the worker. */
  readonly call: string;
  /** `fast 2`. */
  readonly label: string;
  /** It works in a worktree. */
  readonly isolated: boolean;
}

interface WorkerLabels {
  /** @param opened.what tier or name */
  addWorker(worker: string, opened: Omit<WorkerLabel, 'label'> & { readonly what: string }): WorkerLabel;
  findLabel(session: string): WorkerLabel | null;
}

export function createWorkerLabels(): WorkerLabels {
  const known = new Map<string, WorkerLabel>();
  return {
    addWorker(worker, { call, what, isolated }) {
      const label = known.get(worker) ?? { call, label: `${what} ${known.size + 1}`, isolated };
      known.set(worker, label);
      return label;
    },
    findLabel: (session) => known.get(session) ?? null,
  };
}

type Status = PlanEntry['status'];

interface WorkerPlan {
  /** Null for fewer than two new delegations. */
  startPlan(content: readonly ContentBlock[]): SessionUpdate | null;
  setStatus(call: string, status: Status): SessionUpdate | null;
}

/** An entry for each delegation of the newest message that has several. */
export function createPlan(): WorkerPlan {
  let entries = new Map<string, PlanEntry>();
  const toUpdate = (): SessionUpdate => ({ sessionUpdate: 'plan', entries: [...entries.values()] });
  return {
    startPlan(content) {
      const calls = content.filter((block) => block.type === 'tool_use' && block.name === 'delegate');
      if (calls.length < 2 || calls.every((block) => block.type === 'tool_use' && entries.has(block.id))) return null;
      entries = new Map();
      for (const block of calls)
        if (block.type === 'tool_use')
          entries.set(block.id, {
            content: toOneLine(String(block.input.task ?? 'a task')),
            priority: 'medium',
            status: 'pending',
          });
      return toUpdate();
    },
    setStatus(call, status) {
      const entry = entries.get(call);
      if (entry === undefined || entry.status === status) return null;
      entries.set(call, { ...entry, status });
      return toUpdate();
    },
  };
}
