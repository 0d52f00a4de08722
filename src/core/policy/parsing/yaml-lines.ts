// Where in a YAML or JSON text a value stands, for messages about it.
import { EVENT_ID, getScalarValue, parseEvents } from 'js-yaml';
import { type Limits, lineAt } from './limits.ts';

type Event = ReturnType<typeof parseEvents>[number];

/**
 * Finds lines by key path; of a path that is not in the text the line of its longest part that is. Null where there is none.
 * @param text which `readYaml` has read within the same limits
 */
export function lineFinder(text: string, limits: Limits): (path: readonly PropertyKey[]) => number | null {
  const lines = new Map<string, number>();
  try {
    const events = parseEvents(text, { maxDepth: limits.depth + 2 });
    let at = 0;
    const walk = (path: readonly PropertyKey[], keyed: number | null): void => {
      const event = events[at++];
      if (event === undefined || event.type === EVENT_ID.POP) return;
      const place = keyed ?? placeOf(event);
      if (place !== null) lines.set(keyOf(path), lineAt(text, place));
      if (event.type === EVENT_ID.SEQUENCE) {
        for (let i = 0; !isPop(events[at]); i++) walk([...path, i], null);
        at++;
      } else if (event.type === EVENT_ID.MAPPING) {
        while (!isPop(events[at])) {
          const key = events[at]!;
          if (key.type === EVENT_ID.SCALAR) {
            at++;
            walk([...path, getScalarValue(text, key)], placeOf(key));
          } else {
            // A key that is a collection belongs to no definition of ours.
            walk([...path, ''], null);
            walk([...path, ''], null);
          }
        }
        at++;
      }
    };
    at = 1;
    walk([], null);
  } catch {
    // Whoever read the text has said what is wrong with it.
  }
  return (path) => {
    for (let length = path.length; length > 0; length--) {
      const line = lines.get(keyOf(path.slice(0, length)));
      if (line !== undefined) return line;
    }
    return null;
  };
}

function isPop(event: Event | undefined): boolean {
  return event === undefined || event.type === EVENT_ID.POP;
}

function placeOf(event: Event): number | null {
  if ('valueStart' in event && event.valueStart >= 0) return event.valueStart;
  if ('start' in event && event.start >= 0) return event.start;
  return 'anchorStart' in event && event.anchorStart >= 0 ? event.anchorStart : null;
}

function keyOf(path: readonly PropertyKey[]): string {
  return JSON.stringify(path.map(String));
}
