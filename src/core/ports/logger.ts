// The logger as the engine and the adapters see it: structured fields first, one sentence after (pino's shape).

type LogFn = (fields: Readonly<Record<string, unknown>>, message: string) => void;

export interface Logger {
  readonly trace: LogFn;
  readonly debug: LogFn;
  readonly info: LogFn;
  readonly warn: LogFn;
  readonly error: LogFn;
  /** A logger that adds `fields` to every line. */
  child(fields: Readonly<Record<string, unknown>>): Logger;
}

const nothing: LogFn = () => {};
export const silentLogger: Logger = {
  trace: nothing,
  debug: nothing,
  info: nothing,
  warn: nothing,
  error: nothing,
  child: () => silentLogger,
};
