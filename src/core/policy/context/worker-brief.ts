// The prompt of a `delegate` worker: the worker block, its task with context, and the fixed first message (10 §3).
import type { ContextEntry } from '#protocol/delegate.ts';
import { plainText } from '#protocol/text/plain-text.ts';
import { REQUEST_CONTEXT } from '#protocol/tool.ts';

/** Part of the stable text, so that all workers of a workspace share its bytes. */
export const DELEGATED_WORKER_BLOCK = `## Worker mode
You work for a planner agent on one sub-task. Your last message goes to that planner word for word, and no one else reads it.
- Do the task at the end of these instructions, all of it and nothing else.
- When a fact is missing, look it up with your tools before anything else. Never ask a user.
- When you still cannot go on, call \`${REQUEST_CONTEXT}\` once and list everything you need. Never fill a gap with a guess.
- Make your last message the result itself and keep it short; leave out how you got there.`;

/** The only message in a worker's initial history. */
export const WORKER_FIRST_MESSAGE = 'Carry out the task given at the end of your instructions.';

/**
 * The volatile system text of a worker: the task and its context in the planner's order (10 §3.2). The required form of
 * its answer is added by the wire codec, which knows whether the model accepts a schema (11.4).
 */
export function workerTaskPrompt(request: {
  readonly task: string;
  readonly context: readonly ContextEntry[];
}): string {
  const sections = [`## Task\n${request.task}`];
  if (request.context.length > 0) {
    sections.push(`## Context\n${request.context.map((entry, i) => contextItem(i + 1, entry)).join('\n\n')}`);
  }
  return plainText(sections.join('\n\n'));
}

function contextItem(number: number, entry: ContextEntry): string {
  const head = `${number}. ${contextLine(entry)}`;
  if (entry.text === null) return head;
  return `${head}:\n${entry.text}`;
}

/** One line naming the entry: a file reference is complete with it, the others are followed by their text. */
export function contextLine(entry: Pick<ContextEntry, 'kind' | 'label'>): string {
  // A range is a reference to a file too; its label carries the lines.
  return `${entry.kind === 'file_range' ? 'file' : entry.kind} ${entry.label}`;
}
