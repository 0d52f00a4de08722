// A complaint about a file is logged once, however often the file is read (10 §4.4, §5.1).
import type { Logger } from '#core/ports/logger.ts';

/** What was said longest ago is forgotten first: a workspace whose files change all the time fills no memory. */
const MAX_REMEMBERED = 1000;

export interface OnceLogger {
  /** @param about what makes two lines the same one, e.g. a path and a hash of the content */
  log(level: 'warn' | 'info', about: string, fields: Readonly<Record<string, unknown>>, message: string): void;
}

export function createOnceLogger(log: Logger): OnceLogger {
  const said = new Set<string>();
  return {
    log(level, about, fields, message) {
      const key = JSON.stringify([about, message]);
      if (said.has(key)) return;
      if (said.size >= MAX_REMEMBERED) for (const oldest of said.values()) if (said.delete(oldest)) break;
      said.add(key);
      log[level](fields, message);
    },
  };
}
