// What tools a session called and which files they touched, summed up message by message (12 §12.2).
import path from 'node:path';
import type { StoredMessage } from '#protocol/message.ts';
import type { ToolDefinition } from '#protocol/tool.ts';
import { createBeginnings } from '../context/beginnings.ts';

export interface Traces {
  readonly tools: ReadonlySet<string>;
  /** Lower case, with the dot. */
  readonly extensions: ReadonlySet<string>;
  /** First segments of workspace-relative paths. */
  readonly buckets: ReadonlySet<string>;
}
interface Summing {
  readonly tools: Set<string>;
  readonly extensions: Set<string>;
  readonly buckets: Set<string>;
}
type Place = Pick<Summing, 'extensions' | 'buckets'>;

/** Of each kind, the first ones: names come from models, and each is kept with every turn. */
export const MAX_NAMES = 64;
const MAX_NAME_LENGTH = 100;

const beginnings = createBeginnings<Summing>();

/** @param definition of a tool that is registered today; null = of none of that name */
export function tracesOf(
  history: readonly StoredMessage[],
  workspace: string,
  definition: (name: string) => ToolDefinition | null,
): Traces {
  const begun = beginnings.of(history);
  const sum = begun?.state ?? { tools: new Set(), extensions: new Set(), buckets: new Set() };
  for (let i = begun?.count ?? 0; i < history.length; i += 1) {
    const { role, metadata, content } = history[i]!;
    if (role !== 'assistant' || metadata.status !== 'complete') continue;
    for (const block of content) {
      if (block.type !== 'tool_use') continue;
      add(sum.tools, block.name);
      const tool = definition(block.name);
      if (tool?.file_access) for (const file of pathsIn(tool, block.input)) addPath(sum, file, workspace);
    }
  }
  beginnings.keep(history, sum);
  return sum;
}

/** The same with these files touched beside. */
export function withPaths(traces: Traces, paths: readonly string[], workspace: string): Traces {
  if (paths.length === 0) return traces;
  const more = { tools: traces.tools, extensions: new Set(traces.extensions), buckets: new Set(traces.buckets) };
  for (const file of paths) addPath(more, file, workspace);
  return more;
}

function pathsIn(tool: ToolDefinition, input: unknown): string[] {
  if (typeof input !== 'object' || input === null) return [];
  const values = tool.path_fields.flatMap((field) => (input as Record<string, unknown>)[field] ?? []);
  return values.filter((value) => typeof value === 'string');
}

function addPath(place: Place, file: string, workspace: string): void {
  const inside = relative(file, workspace);
  if (inside === null) return;
  const slash = inside.indexOf('/');
  add(place.buckets, slash === -1 ? '.' : inside.slice(0, slash));
  const extension = path.posix.extname(inside).toLowerCase();
  if (extension !== '') add(place.extensions, extension);
}

/** Null for a path that is outside, and for the workspace itself. */
function relative(file: string, workspace: string): string | null {
  const plain = path.posix.normalize(file.replaceAll('\\', '/'));
  const root = workspace.replaceAll('\\', '/').replace(/\/$/, '');
  const inside = plain.startsWith(`${root}/`) ? plain.slice(root.length + 1) : plain;
  const outside = inside === '.' || inside === '' || inside === '..' || /^(\.\.\/|\/|~)/.test(inside);
  return outside ? null : inside.replace(/\/$/, '');
}

function add(set: Set<string>, name: string): void {
  if (name.length <= MAX_NAME_LENGTH && set.size < MAX_NAMES) set.add(name);
}
