// Scenarios of the scripted provider: file format, checks, and the rule that matches a request (11.11).
import picomatch from 'picomatch';
import { z } from 'zod';
import { describeIssues } from '#core/policy/parsing/plain-issue.ts';
import { OWN_FILE } from '#core/policy/parsing/text-limits.ts';
import { readYaml } from '#core/policy/parsing/yaml.ts';
import { joinText, StopReasonSchema } from '#protocol/message.ts';
import type { CanonicalRequest } from '#protocol/model-call.ts';
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
/** The answer of one attempt. */
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
    message: 'is the length of responses; remove one of the two',
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
  /** The n-th use gets the n-th response; the last response serves all further uses. */
  readonly responses: readonly Respond[];
}
export interface Scenario {
  readonly strict: boolean;
  readonly fallback: Respond;
  readonly rules: readonly Rule[];
}

const PLACEHOLDERS = ['last_user_text', 'last_tool_result', 'unapplied_worker', 'model', 'turn', 'call'] as const;
type Placeholder = (typeof PLACEHOLDERS)[number];
const PLACEHOLDER = /\{\{([^{}]*)\}\}/g;

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
    return err(
      describeIssues(parsed.error).map((issue) => `${path}: ${formatScenarioPath(issue.path, raw)}: ${issue.message}`),
    );
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
    return { id, match: rule.match, times: countUses(rule, responses), responses };
  });
  for (const name of unknownPlaceholders(fallback)) problems.push(`${path}: fallback: unknown placeholder {{${name}}}`);
  if (problems.length > 0) return err(problems);
  return ok({ strict, fallback: { ...defaults, ...fallback }, rules });
}

function countUses(rule: z.infer<typeof RuleSchema>, responses: readonly Respond[]): number {
  if (rule.responses !== undefined) return rule.responses.length;
  if (rule.times !== undefined) {
    if (rule.times === 'inf') return Number.POSITIVE_INFINITY;
    return rule.times;
  }
  const placed = rule.match.turn !== undefined || rule.match.call !== undefined;
  if (placed && responses[0]?.error === undefined) return Number.POSITIVE_INFINITY;
  return 1;
}

function unknownPlaceholders(respond: Respond): string[] {
  const found = `${respond.text ?? ''}\n${JSON.stringify(respond.tool_calls ?? [])}`.matchAll(PLACEHOLDER);
  return [...found].map((m) => m[1]!.trim()).filter((name) => !(PLACEHOLDERS as readonly string[]).includes(name));
}

/** `rules[2] (planner-start).respond.text`: the path in the file with the rule's id, as far as it has one. */
function formatScenarioPath(path: readonly PropertyKey[], raw: unknown): string {
  if (path.length === 0) return 'the file';
  let at = raw;
  let out = '';
  for (const key of path) {
    at = readMember(at, key);
    if (typeof key === 'number') out += `[${key}]`;
    else if (out === '') out = String(key);
    else out += `.${String(key)}`;
    if (/^rules\[\d+\]$/.test(out)) {
      let id = readMember(at, 'id');
      if (typeof id !== 'string') id = `rule-${Number(key) + 1}`;
      out += ` (${id})`;
    }
  }
  return out;
}

function readMember(value: unknown, key: PropertyKey): unknown {
  if (typeof value !== 'object' || value === null) return undefined;
  return (value as Record<PropertyKey, unknown>)[key];
}

// Matching: the rule for a request, its use count, and the placeholders in its answer (11.11).

/** Takes the response for one attempt, counting the use; null when no rule fits. Synchronous, so that attempts never interleave in it. */
type Matcher = (request: CanonicalRequest) => Respond | null;

export function createMatcher(scenario: Scenario): Matcher {
  const rules = scenario.rules.map((rule) => ({
    rule,
    // A star also matches the slashes of a model id.
    model: rule.match.model === undefined ? null : picomatch(rule.match.model, { bash: true, dot: true }),
    used: 0,
  }));
  return (request) => {
    const facts = collectFacts(request);
    for (const entry of rules) {
      const { rule } = entry;
      if (entry.used >= rule.times || (entry.model !== null && !entry.model(request.model.id))) continue;
      if (!matchesRule(rule.match, request, facts)) continue;
      const respond = rule.responses[Math.min(entry.used, rule.responses.length - 1)]!;
      entry.used++;
      return fillPlaceholders(respond, request, facts);
    }
    if (scenario.strict) return null;
    return fillPlaceholders(scenario.fallback, request, facts);
  };
}

/** Texts of a request that rules match. */
interface Facts {
  readonly userText: string;
  /** The text that `user_contains` searches; a worker's task is part of it, from the volatile system text (10 §3.2). */
  readonly searched: string;
  readonly toolResult: string;
}

export function collectFacts(request: CanonicalRequest): Facts {
  const user = request.messages.findLast((m) => m.role === 'user');
  const tool = request.messages.findLast((m) => m.role === 'tool');
  const userText = joinText(user?.content ?? []);
  const task = request.system_prompt_volatile ?? '';
  const results = (tool?.content ?? []).map((block) => {
    if (block.type !== 'tool_result') return '';
    return joinText(block.content);
  });
  let searched = userText;
  if (request.caller.is_worker && task !== '') searched += `\n${task}`;
  return { userText, searched, toolResult: results.join('\n') };
}

function matchesRule(match: Match, request: CanonicalRequest, facts: Facts): boolean {
  const { caller } = request;
  return (
    (match.role === undefined || (match.role === 'worker') === caller.is_worker) &&
    (match.turn === undefined || match.turn === caller.turn_index) &&
    (match.call === undefined || match.call === caller.call_index) &&
    (match.user_contains === undefined || facts.searched.includes(match.user_contains)) &&
    (match.tool_result_contains === undefined || facts.toolResult.includes(match.tool_result_contains)) &&
    (match.has_tool === undefined || request.tools.some((tool) => tool.name === match.has_tool))
  );
}

/** What the server adds for the model behind a result (14): an answer that quotes the result leaves it out. */
const SERVER_LINES = /(?:\n?\[(?:budget(?: warning)?:|worker) [^\n\]]*\])+$/;

const UNAPPLIED = /\[changes not applied[^\n]*\]\n\[worker (sess_\w+)/;

/** The newest worker whose changes were not applied (20 §2.5); '' = none. */
function findUnappliedWorker({ messages }: CanonicalRequest): string {
  for (const { content } of messages.toReversed())
    for (const block of content) {
      const found = block.type === 'tool_result' ? UNAPPLIED.exec(joinText(block.content))?.[1] : undefined;
      if (found !== undefined) return found;
    }
  return '';
}

function fillPlaceholders(respond: Respond, request: CanonicalRequest, facts: Facts): Respond {
  const values: Record<Placeholder, string> = {
    last_user_text: facts.userText,
    last_tool_result: facts.toolResult.replace(SERVER_LINES, ''),
    unapplied_worker: findUnappliedWorker(request),
    model: request.model.id,
    turn: String(request.caller.turn_index),
    call: String(request.caller.call_index),
  };
  const fill = (text: string) =>
    text.replace(PLACEHOLDER, (whole, name: string) => values[name.trim() as Placeholder] ?? whole);
  const { text, tool_calls } = respond;
  return {
    ...respond,
    ...(text !== undefined && { text: fill(text) }),
    ...(tool_calls !== undefined && {
      tool_calls: tool_calls.map((c) => ({ name: c.name, input: fillObject(c.input, fill) })),
    }),
  };
}

function fillObject(
  object: Readonly<Record<string, unknown>>,
  fill: (text: string) => string,
): Record<string, unknown> {
  return Object.fromEntries(Object.entries(object).map(([key, value]) => [key, fillValue(value, fill)]));
}

function fillValue(value: unknown, fill: (text: string) => string): unknown {
  if (typeof value === 'string') return fill(value);
  if (Array.isArray(value)) return value.map((v) => fillValue(v, fill));
  if (typeof value === 'object' && value !== null) return fillObject(value as Record<string, unknown>, fill);
  return value;
}
