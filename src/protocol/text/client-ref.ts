// Names of sessions that an MCP server opens: they mark the caller, and mean nothing to people (19 §3.2).

const MARKED = /^mcp [0-9a-f]{16} /;

/** The client's own name for its session; null where it has none. */
export function readClientName(client_ref: string | null): string | null {
  return client_ref === null || MARKED.test(client_ref) ? null : client_ref;
}
