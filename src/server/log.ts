// The process log: one JSON line an entry on stderr, scrubbed of secrets before it is written (11.9).
import { type DestinationStream, pino, stdTimeFunctions } from 'pino';
import type { Logger } from '#core/ports/log.ts';
import type { Config } from '#protocol/config.ts';
import { REDACTED, scrub } from '#protocol/text/scrub.ts';
import type { CommandContext } from './context.ts';
import type { Settings } from './start.ts';
import { createLogOutput } from './telemetry/log-output.ts';
import { mapToSource } from './trace.ts';

const STDERR = 2;
const REDACTED_PATHS = ['*.apiKey', '*.api_key', 'headers.authorization', 'headers["x-api-key"]'];

/**
 * @param secrets asked at every line, so that keys resolved later are covered too
 * @param destination stderr when absent
 */
export function createLogger(
  level: Config['log']['level'],
  secrets: () => readonly string[],
  destination: DestinationStream = createLogOutput(STDERR),
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

/**
 * The process log, which hides keys and tokens. A person at a terminal reads sentences: below `error` they see the lines
 * only when `log.level` asks for them.
 */
export function startLog({ stderr }: CommandContext, { config, credentials, given }: Settings): Logger {
  const level = stderr.isTTY === true && !given.has('log.level') ? 'error' : config.log.level;
  return createLogger(level, () => [...credentials.secrets, ...config.server.auth_tokens]);
}

/** Name, scrubbed text and the frames; of what is no error, a stack written as text is told in places of the source. */
function describeError(value: unknown): unknown {
  if (typeof value === 'string') return mapToSource(value);
  if (!(value instanceof Error)) return value;
  const frames = mapToSource(value.stack ?? '')
    .split('\n')
    .filter((line) => line.startsWith('    at '));
  return { type: value.name, message: scrub(value.message), stack: frames.join('\n') };
}
