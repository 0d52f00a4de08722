// Encodes a canonical request as the body of Anthropic Messages: byte-stable, with cache breakpoints (11.5).
import type { ContentBlock, StoredMessage } from '#protocol/message.ts';
import type { ModelEntry } from '#protocol/model.ts';
import type { CanonicalRequest } from '#protocol/model-call.ts';
import type { CodecLog } from './codec.ts';
import {
  appendText,
  cacheEncoding,
  cacheFold,
  cacheToolList,
  collectSystemTexts,
  createDropLog,
  findUnsupported,
  type GrowingText,
  INTERRUPTED,
  isBlank,
  NO_TEXT,
  type Piece,
  replaceLoneSurrogates,
  sanitizeToolName,
  wrapText,
} from './encode-history.ts';

export interface AnthropicOptions {
  /** The `anthropic-version`, a date; absent = the older one. */
  readonly api_version?: string | undefined;
  readonly prompt_cache?: boolean | undefined;
  /** Overrides the request's value. */
  readonly cache_ttl?: '5m' | '1h' | undefined;
}

/** From this version on `temperature`, `top_p` and `top_k`, and documents in assistant messages, are rejected. */
const NEWER_VERSION = '2026-10-21';

/** Blocks of one message as JSON texts. */
interface Encoded {
  readonly role: 'user' | 'assistant';
  readonly parts: readonly string[];
  /** The last part that may carry a cache breakpoint, -1 for none. */
  readonly markable: number;
  /** The whole message as JSON, for a message that is sent as it is. */
  readonly json: string;
}

/** The encoded messages so far. */
interface EncodedHistory {
  /** All messages but the last, each with its comma. */
  readonly before: GrowingText;
  readonly last: Encoded | null;
  /** Results that will join the next user message. */
  readonly results: readonly Encoded[];
}

/** Creates the encoder of one adapter; it caches the encoding of each message. */
export function createAnthropicEncoder(
  options: AnthropicOptions,
  remarks: CodecLog,
): (request: CanonicalRequest) => readonly Buffer[] {
  const drop = createDropLog(remarks);
  const caching = options.prompt_cache !== false;
  const isOlder = (options.api_version ?? '') < NEWER_VERSION;
  const mark = (json: string, request: CanonicalRequest) => {
    if (!caching) return json;
    const ttl = (options.cache_ttl ?? request.cache_ttl) === '1h' ? ',"ttl":"1h"' : '';
    return `${json.slice(0, -1)},"cache_control":{"type":"ephemeral"${ttl}}}`;
  };
  const encode = cacheEncoding((message, model) => encodeMessage(message, model));
  const listTools = cacheToolList(({ name, description, input_schema }) => ({ name, description, input_schema }));

  function encodeMessage(message: StoredMessage, model: ModelEntry): Encoded {
    const parts: string[] = [];
    let markable = -1;
    for (const block of message.content) {
      const misplaced = block.type === 'document' && message.role === 'assistant' && !isOlder;
      const reason = misplaced ? 'the API takes it from users alone' : findUnsupported(block, message, model);
      if (reason !== null) {
        drop(message, block.type, reason);
        continue;
      }
      const wire = encodeBlock(block, message, model);
      if (wire === null) continue;
      if (block.type !== 'thinking' && block.type !== 'redacted_thinking') markable = parts.length;
      parts.push(replaceLoneSurrogates(JSON.stringify(wire)));
    }
    return encodedMessage(message.role === 'assistant' ? 'assistant' : 'user', parts, markable);
  }

  function encodeBlock(block: ContentBlock, message: StoredMessage, model: ModelEntry): object | null {
    switch (block.type) {
      case 'text':
        if (isBlank(block.text)) return null;
        return { type: 'text', text: block.text };
      case 'image':
      case 'document': {
        const source = { type: 'base64', media_type: block.media_type, data: block.source.data };
        if (block.type === 'image') return { type: 'image', source };
        return { type: 'document', source, title: block.name };
      }
      case 'tool_use':
        return { type: 'tool_use', id: block.id, name: sanitizeToolName(block.name), input: block.input };
      case 'tool_result': {
        const content: object[] = [];
        for (const inner of block.content) {
          const reason = findUnsupported(inner, message, model);
          if (reason !== null) drop(message, inner.type, reason);
          else {
            const wire = encodeBlock(inner, message, model);
            if (wire !== null) content.push(wire);
          }
        }
        return toolResult(block.tool_use_id, content, block.is_error);
      }
      case 'thinking':
        return { type: 'thinking', thinking: block.text, signature: block.signature };
      case 'redacted_thinking':
        return { type: 'redacted_thinking', data: block.data };
    }
  }

  /** Results first, then the user's content, in one message. */
  function flushResults(history: EncodedHistory, ...after: readonly Encoded[]): EncodedHistory {
    const joined = joinMessages([...history.results, ...after]);
    if (joined === null) return history;
    return appendMessage({ ...history, results: [] }, joined);
  }

  function appendMessage(history: EncodedHistory, message: Encoded): EncodedHistory {
    if (message.parts.length === 0) return history;
    const { before, last } = history;
    if (last === null) return { ...history, last: message };
    return { ...history, before: appendText(before, `${last.json},`), last: message };
  }

  const encodeHistory = cacheFold<EncodedHistory>(
    { before: NO_TEXT, last: null, results: [] },
    (history, step, model) => {
      if (step.kind === 'interrupted') {
        const part = toolResult(step.tool_use_id, [{ type: 'text', text: INTERRUPTED }], true);
        return { ...history, results: [...history.results, encodedMessage('user', [JSON.stringify(part)], 0)] };
      }
      const encoded = encode(step.message, model);
      if (step.kind === 'result') return { ...history, results: [...history.results, encoded] };
      if (step.kind === 'user') return flushResults(history, encoded);
      return appendMessage(flushResults(history), encoded);
    },
    drop,
  );

  /** What may change with the next message is behind the text that is kept: the last message, and results that are open. */
  function withMessages(head: readonly Piece[], request: CanonicalRequest): readonly Buffer[] {
    const { before, last, results } = encodeHistory(request);
    const ending = [last, joinMessages(results)].flatMap((message) => (message?.parts.length ? [message] : []));
    const newest = ending.pop();
    const tail = ending.map(({ json }) => `${json},`).join('');
    return wrapText(head, before, [`${tail}${newest === undefined ? '' : markMessage(newest, request)}]}`]);
  }

  function markMessage({ role, parts, markable, json }: Encoded, request: CanonicalRequest): string {
    if (markable < 0) return json;
    return messageJson(role, parts.with(markable, mark(parts[markable]!, request)));
  }

  function systemJson(request: CanonicalRequest): string | null {
    const { stable, volatile } = collectSystemTexts(request);
    const blocks: string[] = [];
    if (stable !== null) blocks.push(mark(JSON.stringify({ type: 'text', text: stable }), request));
    if (volatile !== null) blocks.push(JSON.stringify({ type: 'text', text: volatile }));
    if (blocks.length === 0) return null;
    return `[${blocks.join(',')}]`;
  }

  return (request) => {
    const { model } = request;
    let head = `{"model":${JSON.stringify(model.wire_name)},"max_tokens":${request.max_output_tokens},"stream":true`;
    const system = systemJson(request);
    if (system !== null) head += `,"system":${system}`;
    const fields: string[] = [];
    if (request.tools.length > 0 && request.tool_choice === 'none') fields.push('"tool_choice":{"type":"none"}');
    if (request.stop_sequences.length > 0) fields.push(`"stop_sequences":${JSON.stringify(request.stop_sequences)}`);
    // The provider rejects a temperature combined with thinking.
    if (model.thinking !== null) fields.push(`"thinking":${JSON.stringify(model.thinking)}`);
    else if (request.temperature !== null && isOlder) fields.push(`"temperature":${request.temperature}`);
    const output = buildOutputConfig(request);
    if (output !== null) fields.push(`"output_config":${JSON.stringify(output)}`);
    const rest = replaceLoneSurrogates([...fields, '"messages":['].join(','));
    head = replaceLoneSurrogates(head);
    if (request.tools.length === 0) return withMessages([`${head},${rest}`], request);
    // Open behind the last tool, which gets the mark.
    const tools = listTools(request.tools).subarray(0, -'}]'.length);
    return withMessages([`${head},"tools":`, tools, `${mark('}', request)}],${rest}`], request);
  };
}

function buildOutputConfig({ effort, output_schema, model }: CanonicalRequest): object | null {
  const isFormatted = output_schema !== null && model.capabilities.supports_structured_output;
  if (effort === null && !isFormatted) return null;
  return {
    ...(effort !== null && { effort }),
    ...(isFormatted && { format: { type: 'json_schema', schema: output_schema } }),
  };
}

function toolResult(tool_use_id: string, content: readonly object[], is_error: boolean): object {
  // A failed result needs content. A successful result may be empty and then has no `content`.
  const shown = content.length === 0 && is_error ? [{ type: 'text', text: '(no output)' }] : content;
  return { type: 'tool_result', tool_use_id, ...(shown.length > 0 && { content: shown }), is_error };
}

function encodedMessage(role: Encoded['role'], parts: readonly string[], markable: number): Encoded {
  return { role, parts, markable, json: messageJson(role, parts) };
}

/** Null for no messages. */
function joinMessages(all: readonly Encoded[]): Encoded | null {
  if (all.length < 2) return all[0] ?? null;
  return encodedMessage(
    'user',
    all.flatMap(({ parts }) => parts),
    lastMarkable(all),
  );
}

function messageJson(role: Encoded['role'], parts: readonly string[]): string {
  return `{"role":"${role}","content":[${parts.join(',')}]}`;
}

function lastMarkable(all: readonly Encoded[]): number {
  let at = -1;
  let offset = 0;
  for (const { parts, markable } of all) {
    if (markable >= 0) at = offset + markable;
    offset += parts.length;
  }
  return at;
}
