// Finds permissions in a worker's file that exceed what the server allows without approval (20 §11).
import type { Config } from '#protocol/config.ts';
import type { ToolDefinition } from '#protocol/tool.ts';
import type { WorkerDefinition } from '#protocol/worker-definition.ts';
import { resolveToolMode } from '../tools/approval.ts';

/** Tools that a planner lacks while `workers.dynamic` is false. */
const DYNAMIC_TOOLS = ['worker_create', 'worker_call'];

/** Groups whose tools belong to no workspace. */
const GROUPS = [
  { name: 'sandbox.read', side_effects: 'read', group: 'sandbox.read' },
  { name: 'worker.call', side_effects: 'execute', group: 'worker.call' },
] as const;

interface ServerPolicy {
  readonly confirmation: Pick<Config['tool_confirmation'], 'default' | 'per_tool'>;
  /** `workers.dynamic`. */
  readonly dynamic: boolean;
  readonly tools: readonly Pick<ToolDefinition, 'name' | 'side_effects' | 'group'>[];
}

/** Key path of the definition and what it widens, in the order of the definition; empty = the file needs no trust. */
export function listWidenings(
  definition: Pick<WorkerDefinition, 'tools' | 'tool_rules'>,
  policy: ServerPolicy,
): readonly { readonly path: string; readonly widens: string }[] {
  const lacking = policy.dynamic ? [] : definition.tools.filter((entry) => DYNAMIC_TOOLS.includes(entry));
  const unasked = Object.values(definition.tool_rules).filter(
    ({ name, allowed, approval_required }) => allowed && approval_required === false && !isAutomatic(name, policy),
  );
  return [
    ...lacking.map((name) => ({ path: 'tools', widens: `allows ${name}, which its planner lacks` })),
    ...unasked.map(({ name }) => ({
      path: `tool_rules.${name}.approval_required`,
      widens: `lets ${name} run without an approval`,
    })),
  ];
}

/** Whether everything that the rule covers runs without an approval anyway. A key that covers nothing here may do so later. */
function isAutomatic(key: string, { tools, confirmation }: ServerPolicy): boolean {
  const covered = [
    ...tools.filter(({ name, group }) => name === key || group === key),
    ...GROUPS.filter(({ group }) => group === key),
  ];
  return covered.length > 0 && covered.every((tool) => resolveToolMode(confirmation, tool) === 'auto');
}

// Workers and tools share one space of names (13 §6.2).

const RESERVED: ReadonlySet<string> = new Set([
  'delegate',
  'workers',
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
  if (tools.some((tool) => tool.toLowerCase() === lower)) return `"${name}" is the name of a tool`;
  return null;
}
