// The models that a request lets its provider ask beside the one of the call (19 §2.5).
import { isMapping } from '../parsing/yaml.ts';
import { countOf } from './count.ts';

export interface OtherModel {
  /** Empty where the provider or the model of the call chooses it. */
  readonly name: string;
  /** `advisor` is asked in the midst of the answer, `fallback` in place of the model of the call. */
  readonly role: 'advisor' | 'fallback';
  /** How often it may be asked; null = as often as the model of the call likes. */
  readonly uses: number | null;
  /** Bound of its answer; null = the model's own. */
  readonly output_tokens: number | null;
  /** The member of the body that names it. */
  readonly member: string;
}

type Json = Readonly<Record<string, unknown>>;

const ADVISOR = /(^|:)advisor/;
/** Tools whose work is another model's, which the provider chooses. */
const ASKS_MODELS = /^openrouter:(subagent|fusion|image_generation)/;
/** Tokens of a prompt from which a provider summarises it, where the request does not say. */
const LEAST_COMPACTED = 50_000;

export function otherModels(body: Json, tools: readonly Json[]): OtherModel[] {
  return [
    ...tools.flatMap(askedByTool),
    ...namedIn('fallbacks', body.fallbacks),
    ...namedIn('models', body.models),
    // What the provider keeps under this name may be any model.
    ...(body.preset == null ? [] : [fallback('preset', '')]),
  ];
}

/** Tokens of a prompt from which the provider writes a summary of it before it answers; null = never. */
export function compactedFrom({ context_management }: Json): number | null {
  const given = isMapping(context_management) ? context_management.edits : context_management;
  const edits = (Array.isArray(given) ? given : []).filter(isMapping);
  const thresholds = edits
    .filter(({ type }) => typeof type === 'string' && type.startsWith('compact'))
    .map(({ trigger, compact_threshold }) => countOf(isMapping(trigger) ? trigger.value : compact_threshold));
  return thresholds.length === 0 ? null : Math.min(...thresholds.map((tokens) => tokens ?? LEAST_COMPACTED));
}

function askedByTool(tool: Json): OtherModel[] {
  const { type } = tool;
  if (typeof type !== 'string') return [];
  if (ASKS_MODELS.test(type)) return [{ name: '', role: 'advisor', uses: 1, output_tokens: null, member: 'tools' }];
  if (!ADVISOR.test(type)) return [];
  const given = isMapping(tool.parameters) ? tool.parameters : tool;
  const name = typeof given.model === 'string' ? given.model : '';
  const output_tokens = countOf(given.max_tokens) ?? countOf(given.max_completion_tokens);
  return [{ name, role: 'advisor', uses: countOf(given.max_uses), output_tokens, member: 'tools' }];
}

/** Names alone, or objects with a name. */
function namedIn(member: string, entries: unknown): OtherModel[] {
  return (Array.isArray(entries) ? entries : []).flatMap((entry: unknown) => {
    const name = isMapping(entry) ? entry.model : entry;
    if (typeof name !== 'string') return [];
    return [{ ...fallback(member, name), output_tokens: isMapping(entry) ? countOf(entry.max_tokens) : null }];
  });
}

function fallback(member: string, name: string): OtherModel {
  return { name, role: 'fallback', uses: 1, output_tokens: null, member };
}
