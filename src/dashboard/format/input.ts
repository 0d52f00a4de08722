// The input of a tool call on one line.

const LONGEST = 160;

/** Its values; what is no text says its name. What is left out is marked. */
export function summaryOf(input: Readonly<Record<string, unknown>>): string {
  // A value may be of megabytes: one more character than is shown tells that there are more.
  const parts = Object.entries(input).map(([name, value]) =>
    (typeof value === 'string' ? value : `${name}: ${JSON.stringify(value)}`).slice(0, LONGEST + 1),
  );
  const line = parts.join('  ').replace(/\s+/g, ' ');
  return line.length > LONGEST ? `${line.slice(0, LONGEST - 1)}…` : line;
}
