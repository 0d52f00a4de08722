// The environment of a command: a short list of harmless names, never the server's own (09 §12).

const NAMES = new Set(['PATH', 'HOME', 'LANG', 'TZ', 'TMPDIR', 'USER', 'SHELL']);

/**
 * What `shell` inherits.
 * @param env the server's environment
 * @param passthrough further names the configuration allows
 */
export function shellEnvironment(
  env: Readonly<Record<string, string | undefined>>,
  passthrough: readonly string[],
): Record<string, string> {
  const allowed = (name: string) => NAMES.has(name) || name.startsWith('LC_') || passthrough.includes(name);
  const kept = Object.entries(env).filter(
    (entry): entry is [string, string] => entry[1] !== undefined && allowed(entry[0]),
  );
  return { ...Object.fromEntries(kept), TERM: 'dumb' };
}
