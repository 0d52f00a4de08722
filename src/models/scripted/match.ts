// Which rule answers a request, and with what text: matching, use counts, placeholders (11.11).
import picomatch from 'picomatch';
import { textOf } from '#protocol/message.ts';
import type { CanonicalRequest } from '#protocol/model-request.ts';
import { type Match, PLACEHOLDER, type Placeholder, type Respond, type Scenario } from './scenario.ts';

/** Takes the response for one attempt, counting the use; null when no rule fits. Synchronous, so that attempts never interleave in it. */
export type Matcher = (request: CanonicalRequest) => Respond | null;

export function createMatcher(scenario: Scenario): Matcher {
  const rules = scenario.rules.map((rule) => ({
    rule,
    // A model id holds slashes; a star spans them.
    model: rule.match.model === undefined ? null : picomatch(rule.match.model, { bash: true, dot: true }),
    used: 0,
  }));
  return (request) => {
    const facts = factsOf(request);
    for (const entry of rules) {
      const { rule } = entry;
      if (entry.used >= rule.times || (entry.model !== null && !entry.model(request.model.id))) continue;
      if (!fits(rule.match, request, facts)) continue;
      const respond = rule.responses[Math.min(entry.used, rule.responses.length - 1)]!;
      entry.used++;
      return substitute(respond, request, facts);
    }
    return scenario.strict ? null : substitute(scenario.fallback, request, facts);
  };
}

/** What rules look at. */
export interface Facts {
  readonly userText: string;
  /** What `user_contains` searches: for a worker also its task, which stands in the volatile system text (10 §3.2). */
  readonly searched: string;
  readonly toolResult: string;
}

export function factsOf(request: CanonicalRequest): Facts {
  const user = request.messages.findLast((m) => m.role === 'user');
  const tool = request.messages.findLast((m) => m.role === 'tool');
  const userText = user === undefined ? '' : textOf(user.content);
  const task = request.caller.is_worker ? (request.system_prompt_volatile ?? '') : '';
  return {
    userText,
    searched: task === '' ? userText : `${userText}\n${task}`,
    toolResult:
      tool === undefined ? '' : tool.content.map((b) => (b.type === 'tool_result' ? textOf(b.content) : '')).join('\n'),
  };
}

function fits(match: Match, request: CanonicalRequest, facts: Facts): boolean {
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

function substitute(respond: Respond, request: CanonicalRequest, facts: Facts): Respond {
  const values: Record<Placeholder, string> = {
    last_user_text: facts.userText,
    last_tool_result: facts.toolResult,
    model: request.model.id,
    turn: String(request.caller.turn_index),
    call: String(request.caller.call_index),
  };
  const fill = (text: string) =>
    text.replace(PLACEHOLDER, (whole, name: string) => values[name.trim() as Placeholder] ?? whole);
  const { text, tool_calls } = respond;
  return {
    ...respond,
    ...(text === undefined ? {} : { text: fill(text) }),
    ...(tool_calls === undefined
      ? {}
      : { tool_calls: tool_calls.map((c) => ({ name: c.name, input: fillObject(c.input, fill) })) }),
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
