// Encodes a canonical request as the body of OpenAI Chat Completions, for OpenAI, OpenRouter and compatible servers (11.6).
import type { DocumentBlock, ImageBlock, StoredMessage } from '#protocol/message.ts';
import type { ModelEntry } from '#protocol/model.ts';
import type { CanonicalRequest } from '#protocol/model-call.ts';
import type { Effort } from '#protocol/scalars.ts';
import type { JsonSchema } from '#protocol/tool.ts';
import type { CodecLog } from './codec.ts';
import {
  appendText,
  cacheEncoding,
  cacheFold,
  cacheToolList,
  collectSystemTexts,
  createDropLog,
  type Drop,
  findUnsupported,
  INTERRUPTED,
  isBlank,
  joinResult,
  joinTexts,
  NO_TEXT,
  type Piece,
  replaceLoneSurrogates,
  sanitizeToolName,
  wrapText,
} from './encode-history.ts';

export interface OpenAiOptions {
  readonly stream_usage?: boolean | undefined;
  readonly max_tokens_field?: 'max_completion_tokens' | 'max_tokens' | undefined;
}

const MAX_STOPS = 4;
/** Upstreams of OpenRouter that cache only marked parts. */
const MARKED_VENDORS = /^(?:anthropic|google|qwen)\//;
/** Fields that the encoder sets itself: the answer is always one stream of one choice. */
const RESERVED = new Set(['n', 'stream', 'messages']);

/** Creates the encoder of one adapter; it caches the encoding of each message. */
export function createOpenAiEncoder(
  type: 'openai' | 'openrouter',
  options: OpenAiOptions,
  remarks: CodecLog,
): (request: CanonicalRequest) => readonly Buffer[] {
  const drop = createDropLog(remarks);
  const encode = cacheEncoding((message, model) => {
    const json = encodeMessage(message, model, drop);
    if (json === null) return null;
    return replaceLoneSurrogates(json);
  });
  const listTools = cacheToolList(({ name, description, input_schema: parameters }) => ({
    type: 'function',
    function: { name, description, parameters },
  }));

  /** Messages with a comma before each. */
  const encodeHistory = cacheFold(
    NO_TEXT,
    (history, step, model) => {
      if (step.kind === 'interrupted')
        return appendText(history, `,${JSON.stringify(toolMessage(step.tool_use_id, INTERRUPTED, true))}`);
      const json = encode(step.message, model);
      if (json === null) return history;
      return appendText(history, `,${json}`);
    },
    drop,
  );

  return (request) => {
    const { model, output_schema } = request;
    const fields = new Map<string, Piece>();
    const setField = (key: string, value: unknown) => fields.set(key, replaceLoneSurrogates(JSON.stringify(value)));
    setField('stream', true);
    if (options.stream_usage !== false) setField('stream_options', { include_usage: true });
    setField(options.max_tokens_field ?? 'max_completion_tokens', request.max_output_tokens);
    if (request.tools.length > 0) fields.set('tools', listTools(request.tools));
    if (request.tools.length > 0 && request.tool_choice === 'none') setField('tool_choice', 'none');
    if (request.stop_sequences.length > 0) setField('stop', request.stop_sequences.slice(0, MAX_STOPS));
    if (request.temperature !== null) setField('temperature', request.temperature);
    if (output_schema !== null && model.capabilities.supports_structured_output)
      setField('response_format', {
        type: 'json_schema',
        json_schema: { name: 'response', schema: output_schema, strict: isStrict(output_schema) },
      });
    for (const [key, value] of Object.entries(model.extra_body ?? {})) if (!RESERVED.has(key)) setField(key, value);
    if (request.effort !== null) setField(...toEffortField(type, request.effort, model));
    const name = fields.get('model') ?? JSON.stringify(model.wire_name);
    fields.delete('model');
    const head = `{"model":${name},"messages":[`;
    const tail = [']', ...[...fields].flatMap(([key, json]) => [`,${JSON.stringify(key)}:`, json]), '}'];
    const system = systemMessage(request, type);
    const history = encodeHistory(request);
    if (system !== null) return wrapText([`${head}${replaceLoneSurrogates(JSON.stringify(system))}`], history, tail);
    // Without the first comma.
    return wrapText([head], history, tail, 1);
  };
}

function toEffortField(
  type: 'openai' | 'openrouter',
  effort: Effort,
  { extra_body }: ModelEntry,
): readonly [key: string, value: unknown] {
  if (type === 'openai') return ['reasoning_effort', effort];
  const others = extra_body?.reasoning;
  return ['reasoning', { ...(typeof others === 'object' ? others : null), effort }];
}

function systemMessage(request: CanonicalRequest, type: 'openai' | 'openrouter'): object | null {
  const { stable, volatile } = collectSystemTexts(request);
  const { model } = request;
  if (type === 'openrouter' && model.capabilities.supports_prompt_caching && stable !== null) {
    if (MARKED_VENDORS.test(model.wire_name)) {
      const parts: object[] = [{ type: 'text', text: stable, cache_control: { type: 'ephemeral' } }];
      if (volatile !== null) parts.push({ type: 'text', text: volatile });
      return { role: 'system', content: parts };
    }
  }
  const content = joinTexts([stable, volatile]);
  if (content === null) return null;
  return { role: 'system', content };
}

interface Part {
  readonly type: string;
  readonly text?: string;
  readonly image_url?: object;
  readonly file?: object;
}

/** One message as JSON; null if the wire can express none of its blocks. */
function encodeMessage(message: StoredMessage, model: ModelEntry, drop: Drop): string | null {
  if (message.role === 'assistant') return encodeAssistant(message, drop);
  if (message.role === 'tool') return encodeResult(message);
  const parts: Part[] = [];
  for (const block of message.content) {
    if (block.type === 'text') {
      if (!isBlank(block.text)) parts.push({ type: 'text', text: block.text });
      continue;
    }
    if (block.type !== 'image' && block.type !== 'document') {
      drop(message, block.type, 'this wire has no such block');
      continue;
    }
    const reason = findUnsupported(block, message, model);
    if (reason !== null) drop(message, block.type, reason);
    else parts.push(filePart(block));
  }
  if (parts.length === 0) return null;
  if (parts.length === 1 && parts[0]!.text !== undefined)
    return JSON.stringify({ role: 'user', content: parts[0]!.text });
  return JSON.stringify({ role: 'user', content: parts });
}

function filePart(block: ImageBlock | DocumentBlock): Part {
  const url = `data:${block.media_type};base64,${block.source.data}`;
  if (block.type === 'image') return { type: 'image_url', image_url: { url } };
  return { type: 'file', file: { filename: block.name, file_data: url } };
}

function encodeAssistant(message: StoredMessage, drop: Drop): string | null {
  const texts: string[] = [];
  const calls: object[] = [];
  for (const block of message.content) {
    if (block.type === 'text') {
      if (!isBlank(block.text)) texts.push(block.text);
    } else if (block.type === 'tool_use') {
      const call = { name: sanitizeToolName(block.name), arguments: JSON.stringify(block.input) };
      calls.push({ id: block.id, type: 'function', function: call });
    } else drop(message, block.type, 'this wire has no such block');
  }
  if (texts.length === 0 && calls.length === 0) return null;
  const content = texts.length === 0 ? null : texts.join('\n');
  return JSON.stringify({ role: 'assistant', content, ...(calls.length > 0 && { tool_calls: calls }) });
}

function encodeResult(message: StoredMessage): string | null {
  const result = message.content[0];
  if (result?.type !== 'tool_result') return null;
  const text = joinResult(result.content);
  return JSON.stringify(toolMessage(result.tool_use_id, text, result.is_error));
}

function toolMessage(tool_call_id: string, text: string, isError: boolean): object {
  return { role: 'tool', tool_call_id, content: isError ? `[tool error] ${text}` : text };
}

/** Keywords that hold schemas by name. */
const NAMED_SCHEMAS: ReadonlySet<string> = new Set(['properties', '$defs', 'definitions']);
/** Keywords that hold no schema. */
const DATA_KEYWORDS: ReadonlySet<string> = new Set(['enum', 'const', 'default', 'examples']);

/** Whether every object of the schema is closed and requires all it has; servers refuse `strict: true` otherwise. */
export function isStrict(schema: unknown): boolean {
  if (Array.isArray(schema)) return schema.every(isStrict);
  if (typeof schema !== 'object' || schema === null) return true;
  const node = schema as JsonSchema;
  const { properties, required } = node;
  const types = Array.isArray(node.type) ? node.type : [node.type];
  const isObject = types.includes('object') || (typeof properties === 'object' && properties !== null);
  if (isObject) {
    const names = Object.keys(properties ?? {});
    if (node.additionalProperties !== false) return false;
    if (!names.every((name) => Array.isArray(required) && required.includes(name))) return false;
  }
  // A property may be called "type" or "properties": its value is looked at as a schema, its name never.
  return Object.entries(node).every(([key, value]) => {
    if (NAMED_SCHEMAS.has(key)) return Object.values((value ?? {}) as object).every(isStrict);
    return DATA_KEYWORDS.has(key) || isStrict(value);
  });
}
