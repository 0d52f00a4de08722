// Log lines of a start, held back until its address is printed: that line comes first (17 §1).
import type { DestinationStream } from 'pino';

export interface HeldOutput extends DestinationStream {
  /** Writes what is held; from then on each line is written at once. */
  release(): void;
}

/** What a start reports before it listens is a few lines; a start that reports more is no quiet one. */
const MAX_HELD = 100;
const URGENT = /^\{"level":"(?:error|fatal)"/;

/** An error, too many lines or `release` ends the holding. */
export function holdOutput(output: DestinationStream): HeldOutput {
  let held: string[] | null = [];
  const release = () => {
    const lines = held ?? [];
    held = null;
    for (const line of lines) output.write(line);
  };
  return {
    release,
    write(line) {
      if (held === null) {
        output.write(line);
        return;
      }
      held.push(line);
      if (held.length >= MAX_HELD || URGENT.test(line)) release();
    },
  };
}
