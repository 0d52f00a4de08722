// A call that a person edited before it ran: the stored call is the model's, its result lists the changes (13 §7.5).
import type { Message } from '#client/client.ts';
import type { Block } from './live/open-message.ts';

type Result = Extract<Block, { type: 'tool_result' }>;
type Input = Readonly<Record<string, unknown>>;

const NOTE = '[input edited by user before execution] ';

/** Calls whose results say that they were edited. A tool may write the same: only the approval proves it. */
export function findEditedCalls(messages: readonly Message[]): string[] {
  return messages
    .filter(({ role }) => role === 'tool')
    .flatMap(({ content }) => content.filter((block): block is Result => block.type === 'tool_result'))
    .filter((result) => findEditNote(result) !== null)
    .map(({ tool_use_id }) => tool_use_id);
}

/** The arguments that were used; null where the note is not whole. */
export function executedInput(asked: Input, result: Result): Input | null {
  try {
    const changed = JSON.parse(findEditNote(result) ?? '') as Record<string, unknown> | null;
    if (typeof changed !== 'object' || changed === null) return null;
    // A whole definition takes the place of the arguments.
    if ('yaml' in changed && !('yaml' in asked)) return changed;
    return Object.fromEntries(Object.entries({ ...asked, ...changed }).filter(([, value]) => value !== null));
  } catch {
    return null;
  }
}

function findEditNote({ content: [first] }: Result): string | null {
  if (first?.type === 'text' && first.text.startsWith(NOTE)) return first.text.slice(NOTE.length);
  return null;
}
