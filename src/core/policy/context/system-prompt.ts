// The stable system text of a session: computed once, stored, never changed (10 §2).
import { plainText } from '#protocol/text/plain-text.ts';
import { WORKER_BLOCK } from './worker-brief.ts';

export interface StablePromptParts {
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
  const { instructions } = parts;
  const blocks = [
    parts.base,
    instructions === null || instructions.text.trim() === ''
      ? ''
      : `## Project instructions (${instructions.path})\n${instructions.text.trim()}`,
    parts.worker ? WORKER_BLOCK : '',
    parts.worker ? (parts.memory ?? '') : '',
    parts.skills ?? '',
  ];
  const text = blocks
    .map((block) => block.trim())
    .filter((block) => block !== '')
    .join('\n\n');
  return text === '' ? null : plainText(text);
}
