// A session's title: the first line of its first user message, a worker's of its task (01 §7.1).

const MAX_CODE_POINTS = 80;

/** The first line that is not blank, at most 80 code points; null when there is none. */
export function firstLine(text: string): string | null {
  const line = text.trimStart().split(/\r?\n/, 1)[0]?.trimEnd() ?? '';
  return line === '' ? null : Array.from(line).slice(0, MAX_CODE_POINTS).join('');
}
