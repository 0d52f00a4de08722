// Types of tools and fields of a request that let a provider work by itself, and what bounds each (22 §3).
import type { ClientWire } from '#protocol/client-wire.ts';
import type { FeeTool } from '../pricing/fees.ts';

/** Who runs a tool, and what bounds its bill. */
export type ToolWork =
  /** The client runs it: its result comes with the next request. */
  | { readonly by: 'client' }
  /** The provider runs it as often as a field of the request allows; free where the price table names no fee. */
  | { readonly by: 'provider'; readonly fee: FeeTool; readonly free: boolean }
  /** The provider runs it free of charge, and samples as often as its loop allows. */
  | { readonly by: 'loop'; readonly fee: FeeTool }
  /** Another model answers. */
  | { readonly by: 'advisor' }
  /** Another model answers, and the provider chooses it. */
  | { readonly by: 'chosen_model' }
  /** No field of the request bounds it. */
  | { readonly by: 'unbounded' };

interface WireTools {
  /** Pages and day of reading. */
  readonly pages: readonly string[];
  readonly read_on: string;
  /** Samplings of one request at most; null = one for each use, and one more. */
  readonly samplings: number | null;
  /** The field that bounds the uses, and where it is. */
  readonly uses: { readonly field: string; readonly of: 'tool' | 'body' };
  readonly types: Readonly<Record<string, ToolWork>>;
}

const CLIENT: ToolWork = { by: 'client' };
const UNBOUNDED: ToolWork = { by: 'unbounded' };
const SEARCH: ToolWork = { by: 'provider', fee: 'web_search', free: false };
const FETCH: ToolWork = { by: 'provider', fee: 'web_fetch', free: true };
const TOOL_SEARCH: ToolWork = { by: 'loop', fee: 'tool_search' };
const WEB_SEARCH_CALL: ToolWork = { by: 'provider', fee: 'web_search_call', free: false };
const CONTAINER: ToolWork = { by: 'provider', fee: 'code_interpreter_container', free: false };
const CHOSEN: ToolWork = { by: 'chosen_model' };

/** Tools that no provider runs, on whichever wire they come. */
const RUN_BY_CLIENT: Readonly<Record<string, ToolWork>> = {
  function: CLIENT,
  custom: CLIENT,
  namespace: CLIENT,
  local_shell: CLIENT,
  apply_patch: CLIENT,
  computer: CLIENT,
  computer_use_preview: CLIENT,
  bash_20241022: CLIENT,
  bash_20250124: CLIENT,
  text_editor_20241022: CLIENT,
  text_editor_20250124: CLIENT,
  text_editor_20250429: CLIENT,
  text_editor_20250728: CLIENT,
  memory_20250818: CLIENT,
  computer_20241022: CLIENT,
  computer_20250124: CLIENT,
  computer_20251124: CLIENT,
  browser_toolset_20260801: CLIENT,
  computer_toolset_20260801: CLIENT,
};

const WIRE_TOOLS: Readonly<Record<ClientWire, WireTools>> = {
  messages: {
    pages: [
      'https://platform.claude.com/docs/en/agents-and-tools/tool-use/server-tools',
      'node_modules/@anthropic-ai/sdk 1.11.0: BetaToolUnion, ToolUnion',
    ],
    read_on: '2026-11-23',
    samplings: 10,
    uses: { field: 'max_uses', of: 'tool' },
    types: {
      ...RUN_BY_CLIENT,
      web_search_20250305: SEARCH,
      web_search_20260209: SEARCH,
      web_search_20260318: SEARCH,
      web_fetch_20250910: FETCH,
      web_fetch_20260209: FETCH,
      web_fetch_20260309: FETCH,
      web_fetch_20260318: FETCH,
      tool_search_tool_bm25: TOOL_SEARCH,
      tool_search_tool_bm25_20251119: TOOL_SEARCH,
      tool_search_tool_regex: TOOL_SEARCH,
      tool_search_tool_regex_20251119: TOOL_SEARCH,
      advisor_20260301: { by: 'advisor' },
      // Billed by the hour, and without a field for its uses.
      code_execution_20250522: UNBOUNDED,
      code_execution_20250825: UNBOUNDED,
      code_execution_20260120: UNBOUNDED,
      code_execution_20260521: UNBOUNDED,
      mcp_toolset: UNBOUNDED,
    },
  },
  chat: {
    pages: [
      'https://openrouter.ai/docs/guides/features/server-tools',
      'https://openrouter.ai/docs/sdks/typescript/api-reference/models/advisorservertoolconfig',
      'node_modules/openai 6.49.0: ChatCompletionTool',
    ],
    read_on: '2026-11-23',
    samplings: null,
    uses: { field: 'max_uses', of: 'tool' },
    types: {
      ...RUN_BY_CLIENT,
      // It has no field for its uses, and may work with tools of its own.
      'openrouter:advisor': UNBOUNDED,
      'openrouter:subagent': CHOSEN,
      'openrouter:fusion': CHOSEN,
      'openrouter:image_generation': CHOSEN,
    },
  },
  responses: {
    pages: [
      'https://platform.openai.com/docs/api-reference/responses/create',
      'node_modules/openai 6.49.0: responses Tool, beta responses BetaTool',
    ],
    read_on: '2026-11-23',
    samplings: null,
    uses: { field: 'max_tool_calls', of: 'body' },
    types: {
      ...RUN_BY_CLIENT,
      web_search: WEB_SEARCH_CALL,
      web_search_2025_08_26: WEB_SEARCH_CALL,
      web_search_preview: WEB_SEARCH_CALL,
      web_search_preview_2025_03_11: WEB_SEARCH_CALL,
      file_search: { by: 'provider', fee: 'file_search_call', free: false },
      code_interpreter: CONTAINER,
      shell: CONTAINER,
      image_generation: { by: 'provider', fee: 'image_generation_call', free: false },
      tool_search: { by: 'provider', fee: 'tool_search_call', free: true },
      // Calls of a remote server and of a program are no calls of built-in tools.
      mcp: UNBOUNDED,
      programmatic_tool_calling: UNBOUNDED,
    },
  },
};

/** The tools of a wire, with the pages that they were read on. */
export function getWireTools(wire: ClientWire): WireTools {
  return WIRE_TOOLS[wire];
}

/** Null for a type that the table does not know. */
export function findToolWork(wire: ClientWire, type: string): ToolWork | null {
  const { types } = WIRE_TOOLS[wire];
  if (Object.hasOwn(types, type)) return types[type]!;
  return null;
}

/** Fields of a body that let a provider work by itself, and that nothing in the request bounds: why, and what to do. */
export const UNBOUNDED_FIELDS: Readonly<Record<string, { readonly why: string; readonly remedy: string }>> = {
  preset: {
    why: 'the provider chooses the model of preset',
    remedy: 'name a model that GET /v1/models shows',
  },
  multi_agent: {
    why: 'the provider starts as many agents as the model asks for',
    remedy: 'send the request without multi_agent',
  },
  mcp_servers: {
    why: 'the provider calls these servers without a count',
    remedy: 'send the request without mcp_servers',
  },
  web_search_options: {
    why: 'the provider searches without a count',
    remedy: 'send the request without web_search_options',
  },
  search_parameters: {
    why: 'the provider searches without a count',
    remedy: 'send the request without search_parameters',
  },
  plugins: {
    why: 'the provider runs plugins without a count',
    remedy: 'send the request without plugins',
  },
  prompt: {
    why: 'the provider keeps the tools of a stored prompt',
    remedy: 'send the text of the prompt',
  },
};

/** Members that a bill depends on: in another case they may mean the same to a server that reads them so. */
export const BILLED_MEMBERS: ReadonlySet<string> = new Set([
  ...Object.keys(UNBOUNDED_FIELDS),
  'model',
  'models',
  'messages',
  'input',
  'system',
  'instructions',
  'tools',
  'tool',
  'definition',
  'type',
  'n',
  'best_of',
  'prediction',
  'modalities',
  'reasoning',
  'mode',
  'memory_limit',
  'max_tokens',
  'max_completion_tokens',
  'max_output_tokens',
  'max_tool_calls',
  'max_uses',
  'execution',
  'environment',
  'fallbacks',
  'background',
  'store',
  'container',
  'previous_response_id',
  'conversation',
  'thread',
  'context_management',
  'compaction',
  'edits',
  'trigger',
  'value',
  'compact_threshold',
  'service_tier',
  'speed',
  'inference_geo',
]);
