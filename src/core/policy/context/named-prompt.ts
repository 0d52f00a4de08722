// The system text of a session with a definition: its instructions and what they cannot know (10 §3.4).

import { plainText } from '#protocol/text/plain-text.ts';
import { REQUEST_CONTEXT } from '#protocol/tool.ts';
import type { Sandbox } from '#protocol/worker/definition.ts';

const WORKER_BLOCK = `## Worker mode
You work for a planner agent on one sub-task, which is your first message. Your last message goes to that planner word for word, and nobody else reads it.
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
  const boxes = Object.values(parts.sandboxes);
  const blocks = [
    parts.instructions,
    boxes.length === 0
      ? null
      : `## Folders\nPaths begin with the name of one of these.\n${boxes.map(boxLine).join('\n')}`,
    parts.worker ? WORKER_BLOCK : null,
    parts.skills,
  ];
  return plainText(blocks.filter((block) => block !== null && block.trim() !== '').join('\n\n'));
}

function boxLine({ name, mode, allowed_suffixes, max_bytes }: Sandbox): string {
  const suffixes = allowed_suffixes.map((suffix) => (suffix === '' ? '(no suffix)' : suffix)).join(' ');
  return `- ${name} (${mode === 'rw' ? 'read and write' : 'read only'}, ${suffixes === '' ? 'all files' : suffixes}, at most ${max_bytes} bytes a file)`;
}
