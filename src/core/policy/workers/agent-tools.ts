// What an agent's file lets it use, in terms of a definition: whatever cannot be expressed narrows it (13 §3.1).
import { namesTool } from '../tools/tool-names.ts';

const READING: readonly string[] = ['Read', 'Grep', 'Glob'];
const WRITING: readonly string[] = ['Write', 'Edit'];
/** What an agent has that names none. */
const DEFAULT = [...READING, ...WRITING, 'Bash'];
/** `Bash(git diff:*)`. */
const SCOPED = /^([A-Za-z]+)\((.*)\)$/s;
const MCP_SERVER = /^mcp__(?:(?!__).)+$/s;
const MAX_SHOWN = 64;

export interface AgentLists {
  /** Null = not written. */
  readonly tools: readonly string[] | null;
  readonly disallowed: readonly string[];
  readonly hasSkills: boolean;
  /** `permissionMode: plan`. */
  readonly isPlanning: boolean;
}

export interface AgentTools {
  /** Null = it reads no files. */
  readonly files: 'ro' | 'rw' | null;
  readonly tools: readonly string[];
  /** Tools that a prefix in `tools` covers and that it must not have. */
  readonly denied: readonly string[];
  readonly errors: readonly string[];
  readonly warnings: readonly string[];
}

export function agentTools({ tools, disallowed, hasSkills, isPlanning }: AgentLists): AgentTools {
  const errors: string[] = [];
  const warnings: string[] = [];
  const own = new Set<string>();
  const granted = new Set<string>();
  // A star is all of them.
  for (const entry of tools?.flatMap((tool) => (tool === '*' ? DEFAULT : tool)) ?? DEFAULT) {
    const scope = SCOPED.exec(entry);
    if (entry === 'Skill' || scope?.[1] === 'Skill') granted.add('skill_load');
    else if (entry.startsWith('mcp__')) granted.add(serverPrefix(entry));
    else if (DEFAULT.includes(entry)) own.add(entry);
    else if (scope?.[1] === 'Bash')
      errors.push(`${shown(entry)} cannot be kept: the shell is not narrowed to commands; write Bash, or leave it out`);
    else warnings.push(`${shown(entry)} is not known here and is left out`);
  }
  if (hasSkills) granted.add('skill_load');
  const denied = new Set<string>();
  for (const entry of disallowed) {
    const tool = SCOPED.exec(entry)?.[1] ?? entry;
    if (tool !== entry && (own.has(tool) || (tool === 'Skill' && granted.has('skill_load'))))
      warnings.push(`${shown(entry)} takes all of ${tool} away: a part of it cannot be`);
    own.delete(tool);
    if (tool === 'Skill') granted.delete('skill_load');
    if (tool.startsWith('mcp__')) withhold(serverPrefix(tool), granted, denied, warnings);
  }
  if (isPlanning) {
    for (const tool of [...WRITING, 'Bash']) own.delete(tool);
    const lost = [...granted].filter((tool) => tool.startsWith('mcp__'));
    for (const tool of lost) granted.delete(tool);
    if (lost.length > 0) warnings.push(`${shown(lost.join(', '))}: an agent that plans has no tools of MCP servers`);
  }
  const writes = WRITING.some((tool) => own.has(tool));
  const files = writes ? 'rw' : READING.some((tool) => own.has(tool)) ? 'ro' : null;
  if (own.has('Bash')) granted.add('shell');
  return { files, tools: [...granted].sort(), denied: [...denied], errors, warnings };
}

/** A server's name alone means all its tools. */
function serverPrefix(entry: string): string {
  return MCP_SERVER.test(entry) && !entry.endsWith('*') ? `${entry}__*` : entry;
}

function withhold(entry: string, granted: Set<string>, denied: Set<string>, warnings: string[]): void {
  for (const grant of [...granted]) {
    if (namesTool(entry, grant)) granted.delete(grant);
    else if (!grant.endsWith('*')) continue;
    else if (!entry.endsWith('*') && namesTool(grant, entry)) denied.add(entry);
    else if (entry.endsWith('*') && namesTool(grant, entry.slice(0, -1))) {
      granted.delete(grant);
      warnings.push(`${shown(grant)} is left out: ${shown(entry)} cannot be taken away from it`);
    }
  }
}

function shown(entry: string): string {
  return JSON.stringify(entry.slice(0, MAX_SHOWN));
}
