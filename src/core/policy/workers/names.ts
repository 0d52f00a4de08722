// Workers and tools share one space of names (13 §6.2).

const RESERVED: ReadonlySet<string> = new Set([
  'delegate',
  'worker_call',
  'worker_create',
  'agent_call',
  'agent_create',
  'web_search',
  'web_fetch',
  'code_execution',
  'image_generation',
]);

/** Why a worker cannot bear the name; null = it can. Letters of either case are the same. */
export function reservedName(name: string, tools: readonly string[]): string | null {
  const lower = name.toLowerCase();
  if (RESERVED.has(lower) || lower.startsWith('mcp__') || name.startsWith('_')) return `"${name}" is a reserved name`;
  return tools.some((tool) => tool.toLowerCase() === lower) ? `"${name}" is the name of a tool` : null;
}
