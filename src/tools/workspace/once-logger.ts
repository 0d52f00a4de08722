// Logs each problem of a file once, however often the file is read (10 §4.4, §5.1).
import type { Logger } from '#core/ports/logger.ts';

/** Maximum remembered lines; the oldest are dropped first. */
const MAX_REMEMBERED = 1000;

export interface OnceLogger {
  /** @param about identifies repeated lines, e.g. a path and a hash of the content */
  log(level: 'warn' | 'info', about: string, fields: Readonly<Record<string, unknown>>, message: string): void;
}

export function createOnceLogger(log: Logger): OnceLogger {
  const logged = new Set<string>();
  return {
    log(level, about, fields, message) {
      const key = JSON.stringify([about, message]);
      if (logged.has(key)) return;
      if (logged.size >= MAX_REMEMBERED) for (const oldest of logged.values()) if (logged.delete(oldest)) break;
      logged.add(key);
      log[level](fields, message);
    },
  };
}
