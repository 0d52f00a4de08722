// The scenario file of the scripted provider: its shape, its checks, its defaults (11.11).
import { z } from 'zod';
import { OWN_FILE } from '#core/policy/parsing/limits.ts';
import { plainIssues } from '#core/policy/parsing/plain-issue.ts';
import { readYaml } from '#core/policy/parsing/yaml.ts';
import { StopReasonSchema } from '#protocol/message.ts';
import { err, ok, type Result } from '#protocol/result.ts';
import { ErrorClassSchema } from '#protocol/scalars.ts';
import { TokenUsageSchema } from '#protocol/usage.ts';

const milliseconds = z.number().min(0).max(3_600_000);
const ErrorSchema = z.strictObject({
  error_class: ErrorClassSchema,
  error_detail: z.string().nullable().default(null),
  status: z.int().min(100).max(599).nullable().default(null),
  retry_after_seconds: z.number().min(0).nullable().default(null),
  after_chunks: z.int().min(0).nullable().default(null),
});
const RespondSchema = z.strictObject({
  thinking: z.string().optional(),
  text: z.string().optional(),
  tool_calls: z
    .array(z.strictObject({ name: z.string().min(1), input: z.record(z.string(), z.unknown()).default({}) }))
    .optional(),
  stop_reason: StopReasonSchema.exclude(['cancelled', 'error']).optional(),
  usage: TokenUsageSchema.partial().optional(),
  delay_ms: milliseconds.optional(),
  chunk_chars: z.int().min(1).optional(),
  chunk_delay_ms: milliseconds.optional(),
  error: ErrorSchema.optional(),
  hang: z.boolean().optional(),
});
/** What one attempt answers. */
export type Respond = z.infer<typeof RespondSchema>;

const MatchSchema = z.strictObject({
  role: z.enum(['planner', 'worker']).optional(),
  turn: z.int().min(1).optional(),
  call: z.int().min(1).optional(),
  model: z.string().min(1).optional(),
  user_contains: z.string().optional(),
  tool_result_contains: z.string().optional(),
  has_tool: z.string().optional(),
});
export type Match = z.infer<typeof MatchSchema>;

const RuleSchema = z
  .strictObject({
    id: z.string().min(1).optional(),
    match: MatchSchema.default({}),
    times: z.union([z.int().min(1), z.literal('inf')]).optional(),
    respond: RespondSchema.optional(),
    responses: z.array(RespondSchema).min(1).optional(),
  })
  .refine((r) => (r.respond === undefined) !== (r.responses === undefined), 'needs either respond or responses')
  .refine((r) => r.responses === undefined || r.times === undefined, {
    path: ['times'],
    message: 'is the length of responses and cannot be given beside it',
  });
const ScenarioSchema = z.strictObject({
  version: z.literal(1),
  strict: z.boolean().default(true),
  defaults: RespondSchema.default({}),
  fallback: RespondSchema.default({ text: '[scripted] no rule matched' }),
  rules: z.array(RuleSchema).default([]),
});

export interface Rule {
  readonly id: string;
  readonly match: Match;
  readonly times: number;
  /** The n-th use answers with the n-th of them, the last one serving all further uses. */
  readonly responses: readonly Respond[];
}
export interface Scenario {
  readonly strict: boolean;
  readonly fallback: Respond;
  readonly rules: readonly Rule[];
}

export const PLACEHOLDERS = ['last_user_text', 'last_tool_result', 'model', 'turn', 'call'] as const;
export type Placeholder = (typeof PLACEHOLDERS)[number];
export const PLACEHOLDER = /\{\{([^{}]*)\}\}/g;

/**
 * Parses YAML or JSON.
 * @param path the file's name for the messages
 * @returns the scenario, or one line per problem naming file, rule and path
 */
export function parseScenario(text: string, path: string): Result<Scenario, string[]> {
  const yaml = readYaml(text, OWN_FILE);
  if (!yaml.ok) return err([`${path}: ${yaml.error}`]);
  const raw = yaml.value;
  const parsed = ScenarioSchema.safeParse(raw);
  if (!parsed.success) {
    return err(plainIssues(parsed.error).map((issue) => `${path}: ${place(issue.path, raw)}: ${issue.message}`));
  }
  const { defaults, fallback, strict } = parsed.data;
  const problems: string[] = [];
  const seen = new Set<string>();
  const rules = parsed.data.rules.map((rule, index): Rule => {
    const id = rule.id ?? `rule-${index + 1}`;
    if (seen.has(id)) problems.push(`${path}: rules[${index}] (${id}): the id is used twice`);
    seen.add(id);
    const responses = (rule.responses ?? [rule.respond!]).map((respond) => ({ ...defaults, ...respond }));
    for (const name of responses.flatMap(unknownPlaceholders)) {
      problems.push(
        `${path}: rules[${index}] (${id}): unknown placeholder {{${name}}}; known: ${PLACEHOLDERS.join(', ')}`,
      );
    }
    return { id, match: rule.match, times: uses(rule, responses), responses };
  });
  for (const name of unknownPlaceholders(fallback)) problems.push(`${path}: fallback: unknown placeholder {{${name}}}`);
  if (problems.length > 0) return err(problems);
  return ok({ strict, fallback: { ...defaults, ...fallback }, rules });
}

function uses(rule: z.infer<typeof RuleSchema>, responses: readonly Respond[]): number {
  if (rule.responses !== undefined) return rule.responses.length;
  if (rule.times !== undefined) return rule.times === 'inf' ? Number.POSITIVE_INFINITY : rule.times;
  const placed = rule.match.turn !== undefined || rule.match.call !== undefined;
  return placed && responses[0]?.error === undefined ? Number.POSITIVE_INFINITY : 1;
}

function unknownPlaceholders(respond: Respond): string[] {
  const found = `${respond.text ?? ''}\n${JSON.stringify(respond.tool_calls ?? [])}`.matchAll(PLACEHOLDER);
  return [...found].map((m) => m[1]!.trim()).filter((name) => !(PLACEHOLDERS as readonly string[]).includes(name));
}

/** `rules[2] (planner-start).respond.text`: the path in the file with the rule's id, as far as it has one. */
function place(path: readonly PropertyKey[], raw: unknown): string {
  if (path.length === 0) return 'the file';
  let at = raw;
  let out = '';
  for (const key of path) {
    at = typeof at === 'object' && at !== null ? (at as Record<PropertyKey, unknown>)[key] : undefined;
    out += typeof key === 'number' ? `[${key}]` : `${out === '' ? '' : '.'}${String(key)}`;
    if (/^rules\[\d+\]$/.test(out)) {
      const id = typeof at === 'object' && at !== null && 'id' in at ? at.id : undefined;
      out += ` (${typeof id === 'string' ? id : `rule-${Number(key) + 1}`})`;
    }
  }
  return out;
}
