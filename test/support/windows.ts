// Models with small windows, and a provider that answers by what it is asked, not by a script of turns.

import type { ProviderAdapter } from '#core/ports/provider.ts';
import type { ToolFactory } from '#core/ports/tool-port.ts';
import { parseScenario, type Scenario } from '#models/scripted/scenario.ts';
import type { ScriptedAdapter } from '#models/scripted/scripted-adapter.ts';
import { joinText, type StoredMessage } from '#protocol/message.ts';
import type { CanonicalRequest } from '#protocol/model-call.ts';
import { toolText } from '#protocol/tool.ts';
import { must } from './engine.ts';

const model = (id: string, tier: string | null, alias: string, window: number) => `
  ${id}:
    adapter: scripted
    ${tier === null ? '' : `tier: ${tier}`}
    aliases: [${alias}]
    capabilities: { max_context_tokens: ${window}, max_output_tokens: 4096, supports_images: true }`;

/** `small` has the given window, `fast` summarises, `large` takes everything. */
export function smallWindow(tokens: number, fast = 100_000): string {
  return `adapters:\n  scripted: { type: scripted }\nmodels:${[
    model('anthropic:claude-sonnet-4-6', 'balanced', 'small', tokens),
    model('anthropic:claude-haiku-4-5', 'fast', 'fast', fast),
    model('anthropic:claude-opus-4-7', 'deep', 'large', 1_000_000),
  ].join('')}\n`;
}

/** Tokens that a request to `small` may have. */
export const budgetOf = (tokens: number) => tokens - 4096 - 1024;

/** A tool `fetch` whose result has as many bytes as it is asked for, and says which call it answers. */
export const fetchTool: ToolFactory = () => ({
  definition: {
    name: 'fetch',
    description: 'fetches',
    input_schema: {
      type: 'object',
      properties: { n: { type: 'integer' }, bytes: { type: 'integer' } },
      additionalProperties: false,
    },
    side_effects: 'none',
    requires_workspace: false,
    path_fields: [],
    timeout_seconds: null,
  },
  execute: async ({ n, bytes }) => toolText(`result ${n} `.padEnd(Number(bytes), 'x')),
  cancel: async () => false,
});

export interface Asked extends ProviderAdapter {
  /** What was asked, oldest first. */
  readonly requests: CanonicalRequest[];
}

export const isSummaryCall = (request: CanonicalRequest) =>
  request.tools.length === 0 && request.system_prompt?.includes('goes on with your summary') === true;

/** Answers each request with what `answer` says of it: the `respond` of a scenario. */
export function answering(
  script: (scenario: Scenario) => ScriptedAdapter,
  answer: (request: CanonicalRequest) => object,
): Asked {
  const requests: CanonicalRequest[] = [];
  return {
    name: 'scripted',
    requests,
    stream: (request, signal, deliver) => {
      requests.push({ ...request, messages: [...request.messages] });
      const rules = { version: 1, rules: [{ respond: answer(request) }] };
      return script(must(parseScenario(JSON.stringify(rules), 'answer'))).stream(request, signal, deliver);
    },
    close: async () => {},
  };
}

/** The text that a message says, or that a tool answered. */
export function saidIn(message: StoredMessage): string {
  const [block] = message.content;
  return block?.type === 'tool_result' ? joinText(block.content) : joinText(message.content);
}

/**
 * Says what the newest message of a person asks for: `fetch 3 of 8192` is three calls of `fetch` one after the other,
 * then an answer. A summary is `SUMMARY`.
 */
export function obedient(request: CanonicalRequest): object {
  if (isSummaryCall(request)) return { text: 'SUMMARY' };
  const at = request.messages.findLastIndex((m) => m.role === 'user');
  const [, times, bytes] =
    /fetch (\d+) of (\d+)/.exec(`${saidIn(request.messages[at]!)} ${request.system_prompt_volatile ?? ''}`) ?? [];
  const done = request.messages.slice(at).filter((m) => m.role === 'tool').length;
  if (done >= Number(times ?? 0)) return { text: 'done' };
  return { tool_calls: [{ name: 'fetch', input: { n: done + 1, bytes: Number(bytes) } }] };
}
