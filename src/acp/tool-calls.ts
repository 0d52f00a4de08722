// Tool calls as an editor shows them (19 §4).
import path from 'node:path';
import type { ToolCallContent, ToolCallLocation, ToolKind } from '@agentclientprotocol/sdk';

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
