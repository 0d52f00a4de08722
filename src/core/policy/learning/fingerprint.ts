// The shape of a turn before it is routed, and its signature (12 §12.2). No model call, no embedding.
import path from 'node:path';
import {
  EFFECT_CLASSES,
  type Fingerprint,
  FingerprintSchema,
  INTENTS,
  type Intent,
} from '#protocol/learned-pattern.ts';
import type { StoredMessage } from '#protocol/message.ts';
import { canonicalJson, sha256Hex } from '#protocol/text/canonical-json.ts';
import type { ToolDefinition } from '#protocol/tool.ts';
import { createBeginnings } from '../context/beginnings.ts';
import { omitDefaults, readDefaults, restoreDefaults } from '../journal/stored-payload.ts';

// Collects the tools that a session called and the files that they touched, message by message (12 §12.2).

interface Traces {
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

/** Maximum names of each kind: they come from models and are stored with every turn. */
export const MAX_NAMES = 64;
const MAX_NAME_LENGTH = 100;

const beginnings = createBeginnings<Summing>();

/** @param definition of a tool that is registered today; null = of none of that name */
export function readTraces(
  history: readonly StoredMessage[],
  workspace: string,
  definition: (name: string) => ToolDefinition | null,
): Traces {
  const begun = beginnings.find(history);
  const sum = begun?.state ?? { tools: new Set(), extensions: new Set(), buckets: new Set() };
  for (let i = begun?.count ?? 0; i < history.length; i += 1) {
    const { role, metadata, content } = history[i]!;
    if (role !== 'assistant' || metadata.status !== 'complete') continue;
    for (const block of content) {
      if (block.type !== 'tool_use') continue;
      addName(sum.tools, block.name);
      const tool = definition(block.name);
      if (tool?.file_access) for (const file of listPaths(tool, block.input)) addPath(sum, file, workspace);
    }
  }
  beginnings.keep(history, sum);
  return sum;
}

/** The same with additional touched files. */
export function addPaths(traces: Traces, paths: readonly string[], workspace: string): Traces {
  if (paths.length === 0) return traces;
  const more = { tools: traces.tools, extensions: new Set(traces.extensions), buckets: new Set(traces.buckets) };
  for (const file of paths) addPath(more, file, workspace);
  return more;
}

function listPaths(tool: ToolDefinition, input: unknown): string[] {
  if (typeof input !== 'object' || input === null) return [];
  const values = tool.path_fields.flatMap((field) => (input as Record<string, unknown>)[field] ?? []);
  return values.filter((value) => typeof value === 'string');
}

function addPath(place: Place, file: string, workspace: string): void {
  const inside = toRelative(file, workspace);
  if (inside === null) return;
  const slash = inside.indexOf('/');
  addName(place.buckets, slash === -1 ? '.' : inside.slice(0, slash));
  const extension = path.posix.extname(inside).toLowerCase();
  if (extension !== '') addName(place.extensions, extension);
}

/** Null for a path that is outside, and for the workspace itself. */
function toRelative(file: string, workspace: string): string | null {
  const plain = path.posix.normalize(file.replaceAll('\\', '/'));
  const root = workspace.replaceAll('\\', '/').replace(/\/$/, '');
  const inside = plain.startsWith(`${root}/`) ? plain.slice(root.length + 1) : plain;
  const outside = inside === '.' || inside === '' || inside === '..' || /^(\.\.\/|\/|~)/.test(inside);
  if (outside) return null;
  return inside.replace(/\/$/, '');
}

function addName(set: Set<string>, name: string): void {
  if (name.length <= MAX_NAME_LENGTH && set.size < MAX_NAMES) set.add(name);
}

// Guesses the intent of a message from its words (12 §12.2).

const WORDS: Readonly<Record<Intent, RegExp>> = {
  commit: /\b(commit|stage|git add)\b/i,
  refactor: /\b(refactor|rename|extract|inline|cleanup|simplif)/i,
  architecture: /\b(architect|(design|module|abstraction|interface)\b)/i,
  debug: /\b(debug|bug|error|stack ?trace|broken|fails?)\b/i,
  doc: /\b(docs?|document|readme|comment|docstring)\b/i,
  test: /\b(tests?|pytest|unit ?test|e2e)\b/i,
};
/** Maximum characters that are searched, as for the predicates of rules. */
const MAX_LENGTH = 20_000;

/** In the order of the table. */
export function detectIntents(text: string): Intent[] {
  const looked = text.slice(0, MAX_LENGTH);
  return INTENTS.filter((intent) => WORDS[intent].test(looked));
}

interface FingerprintFacts {
  /** The new user message, or the task of a worker. */
  readonly text: string;
  readonly has_images: boolean;
  readonly estimated_input_tokens: number;
  readonly workspace_hash: string;
  /** Traces of the session before this turn. */
  readonly traces: Traces;
}

const TOKEN_BUCKETS = [1_000, 10_000, 100_000];

export function buildFingerprint(
  { text, has_images, estimated_input_tokens, workspace_hash, traces }: FingerprintFacts,
  definition: (name: string) => ToolDefinition | null,
): Fingerprint {
  const effects = new Set([...traces.tools].map((name) => definition(name)?.side_effects));
  return {
    file_extensions: [...traces.extensions].sort(),
    file_path_buckets: [...traces.buckets].sort(),
    tool_names: [...traces.tools].sort(),
    side_effect_classes: EFFECT_CLASSES.filter((effect) => effects.has(effect)),
    has_images,
    has_tool_calls_in_history: traces.tools.size > 0,
    estimated_input_tokens_bucket: TOKEN_BUCKETS.filter((limit) => estimated_input_tokens >= limit).length,
    intent_tags: detectIntents(text),
    workspace_hash,
  };
}

/** Canonical text and its SHA-256: equal for equal shapes in one workspace. */
export function signFingerprint(fingerprint: Fingerprint): {
  readonly structural_json: string;
  readonly structural_sig: string;
} {
  const structural_json = canonicalJson(fingerprint);
  return { structural_json, structural_sig: sha256Hex(structural_json) };
}

// The shape of a turn as its row holds it: without default values and fields that its session has (12 §12.2).

const DEFAULTS = readDefaults(FingerprintSchema);

/** The fields of a shape that have to be stored. */
export function toStoredFingerprint({ workspace_hash: _, ...shape }: Fingerprint): Record<string, unknown> {
  return omitDefaults(DEFAULTS, shape);
}

/**
 * The shape again; one that was stored whole stays as it is.
 * @param workspaceHash of its session
 */
export function restoreFingerprint(stored: Readonly<Record<string, unknown>>, workspaceHash: string): Fingerprint {
  return restoreDefaults(DEFAULTS, { workspace_hash: workspaceHash, ...stored }) as Fingerprint;
}
