// The process log: one JSON line an entry on stderr, scrubbed of secrets before it is written (11.9).
import { type DestinationStream, pino, stdTimeFunctions } from 'pino';
import type { Config } from '../domain/config.ts';
import { REDACTED, scrub } from '../kernel/scrub.ts';
import type { Logger } from '../ports/log.ts';

const REDACTED_PATHS = ['*.apiKey', '*.api_key', 'headers.authorization', 'headers["x-api-key"]'];

/**
 * @param secrets asked at every line, so that keys resolved later are covered too
 * @param destination stderr when absent
 */
export function createLogger(
  level: Config['log']['level'],
  secrets: () => readonly string[],
  destination: DestinationStream = pino.destination({ fd: 2, sync: true }),
): Logger {
  const write = (line: string) => {
    let clean = line;
    for (const secret of secrets()) {
      const written = JSON.stringify(secret).slice(1, -1);
      if (written !== '') clean = clean.replaceAll(written, REDACTED);
    }
    destination.write(clean);
  };
  return pino(
    {
      level,
      base: null,
      timestamp: stdTimeFunctions.isoTime,
      redact: { paths: REDACTED_PATHS, censor: REDACTED },
      formatters: { level: (label) => ({ level: label }) },
      serializers: { err: describeError, error: describeError },
    },
    { write },
  );
}

/** Name, scrubbed text and the frames; what is no error stays as it is. */
function describeError(value: unknown): unknown {
  if (!(value instanceof Error)) return value;
  const frames = (value.stack ?? '').split('\n').filter((line) => line.startsWith('    at '));
  return { type: value.name, message: scrub(value.message), stack: frames.join('\n') };
}
