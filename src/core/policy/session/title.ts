// A session's title: the first line of its first user message, a worker's of its task (01 §7.1).

const MAX_CODE_POINTS = 80;

/** The first line that is not blank; of a longer one than 80 code points the first 79 and `…`. Null when there is none. */
export function firstLine(text: string): string | null {
  const line = text.trimStart().split(/\r?\n/, 1)[0]?.trimEnd() ?? '';
  if (line === '') return null;
  // A line may be of megabytes: no more of it is looked at than could count.
  const points = Array.from(line.slice(0, 2 * MAX_CODE_POINTS + 2));
  if (points.length <= MAX_CODE_POINTS) return line;
  return `${points
    .slice(0, MAX_CODE_POINTS - 1)
    .join('')
    .trimEnd()}…`;
}
