// `${VAR}` and `${VAR:-default}` in the settings of an MCP server (09 §11, 18 §2).

const VARIABLE = /\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}/g;

export interface Expanded {
  readonly values: Readonly<Record<string, string>>;
  /** Variables that yielded nothing, each once. */
  readonly missing: readonly string[];
}

/**
 * Values with their variables filled in; one that is not there yields nothing.
 * @param lookup the value of a variable; undefined = not there, or not for this reader
 */
export function expandVariables(
  values: Readonly<Record<string, string>>,
  lookup: (name: string) => string | undefined,
): Expanded {
  const missing = new Set<string>();
  const filled = Object.entries(values).map(([key, text]) => [
    key,
    text.replace(VARIABLE, (_, name: string, fallback: string | undefined) => {
      const value = lookup(name) || fallback;
      if (value === undefined) missing.add(name);
      return value ?? '';
    }),
  ]);
  return { values: Object.fromEntries(filled), missing: [...missing] };
}
