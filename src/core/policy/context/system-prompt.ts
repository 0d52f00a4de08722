// The stable system text of a session: computed once, stored, never changed (10 §2).
import { plainText } from '#protocol/text/plain-text.ts';
import { REQUEST_CONTEXT } from '#protocol/tool.ts';
import type { Sandbox } from '#protocol/worker-definition.ts';
import { DELEGATED_WORKER_BLOCK } from './worker-brief.ts';

interface StablePromptParts {
  /** Base persona. */
  readonly base: string;
  /** The workspace's instruction file, already cut to its limit. */
  readonly instructions: { readonly path: string; readonly text: string } | null;
  readonly worker: boolean;
  /** Memory text of 10 §4.5; used for workers only, since a planner's goes to the volatile text. */
  readonly memory: string | null;
  /** Skill index of 10 §5.3. */
  readonly skills: string | null;
}

/** The blocks in order, joined by one blank line, blank ones left out; null when nothing is left. */
export function stablePrompt(parts: StablePromptParts): string | null {
  const blocks = [parts.base, formatInstructions(parts.instructions)];
  if (parts.worker) blocks.push(DELEGATED_WORKER_BLOCK, parts.memory ?? '');
  blocks.push(parts.skills ?? '');
  const text = blocks
    .map((block) => block.trim())
    .filter((block) => block !== '')
    .join('\n\n');
  if (text === '') return null;
  return plainText(text);
}

function formatInstructions(instructions: StablePromptParts['instructions']): string {
  const text = instructions?.text.trim() ?? '';
  if (text === '') return '';
  return `## Project instructions (${instructions?.path})\n${text}`;
}

// The system text of a session with a definition: its instructions, and facts that a definition cannot contain (10 §3.4).

const NAMED_WORKER_BLOCK = `## Worker mode
You work for a planner agent on one sub-task, which is your first message. Your last message goes to that planner word for word, and no one else reads it.
- Do that task, all of it and nothing else.
- When a fact is missing, look it up with your tools before anything else. Never ask a user.
- When you still cannot go on, call \`${REQUEST_CONTEXT}\` once and list everything you need. Never fill a gap with a guess.
- Make your last message the result itself and keep it short; leave out how you got there.`;

/** @param skills index, where the session can load one */
export function namedPrompt(parts: {
  readonly instructions: string;
  readonly sandboxes: Readonly<Record<string, Sandbox>>;
  readonly worker: boolean;
  readonly skills: string | null;
}): string {
  const folders = Object.values(parts.sandboxes).map(formatFolder);
  const blocks = [parts.instructions];
  if (folders.length > 0) blocks.push(`## Folders\nPaths begin with the name of one of these.\n${folders.join('\n')}`);
  if (parts.worker) blocks.push(NAMED_WORKER_BLOCK);
  blocks.push(parts.skills ?? '');
  return plainText(blocks.filter((block) => block.trim() !== '').join('\n\n'));
}

const MODES: Readonly<Record<Sandbox['mode'], string>> = { rw: 'read and write', ro: 'read only' };

function formatFolder({ name, mode, allowed_suffixes, max_bytes }: Sandbox): string {
  const suffixes = allowed_suffixes.map((suffix) => suffix || '(no suffix)').join(' ') || 'all files';
  return `- ${name} (${MODES[mode]}, ${suffixes}, at most ${max_bytes} bytes a file)`;
}
