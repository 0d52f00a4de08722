// Encodes a canonical request as the body of OpenAI Responses; the provider stores nothing of it (22 §4).

import type { ContentBlock, DocumentBlock, ImageBlock, StoredMessage } from '#protocol/message.ts';
import { getProvider, type ModelEntry } from '#protocol/model.ts';
import type { CanonicalRequest } from '#protocol/model-call.ts';
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
import { isStrict } from './openai-request.ts';
import { readReasoning } from './reasoning-items.ts';

/** Fields that the encoder sets itself. */
const RESERVED = new Set(['stream', 'store', 'input', 'include', 'instructions', 'background', 'previous_response_id']);

/** Creates the encoder of one adapter; it caches the encoding of each message. */
export function createResponsesEncoder(remarks: CodecLog): (request: CanonicalRequest) => readonly Buffer[] {
  const drop = createDropLog(remarks);
  /** Items of one message, each with a comma before it. */
  const encode = cacheEncoding((message, model) =>
    replaceLoneSurrogates(
      encodeMessage(message, model, drop)
        .map((item) => `,${JSON.stringify(item)}`)
        .join(''),
    ),
  );
  const listTools = cacheToolList(({ name, description, input_schema: parameters }) => {
    // Without `strict` the provider takes the schema as strict, and rejects most of them.
    return { type: 'function', name, description, parameters, strict: false };
  });

  const encodeHistory = cacheFold(
    NO_TEXT,
    (history, step, model) => {
      if (step.kind !== 'interrupted') return appendText(history, encode(step.message, model));
      const answer = callOutput(step.tool_use_id, INTERRUPTED, true);
      return appendText(history, `,${JSON.stringify(answer)}`);
    },
    drop,
  );

  return (request) => {
    const { model, output_schema } = request;
    const fields = new Map<string, Piece>();
    const setField = (key: string, value: unknown) => fields.set(key, replaceLoneSurrogates(JSON.stringify(value)));
    setField('stream', true);
    setField('store', false);
    setField('include', ['reasoning.encrypted_content']);
    setField('max_output_tokens', request.max_output_tokens);
    const { stable, volatile } = collectSystemTexts(request);
    const instructions = joinTexts([stable, volatile]);
    if (instructions !== null) setField('instructions', instructions);
    if (request.tools.length > 0) fields.set('tools', listTools(request.tools));
    if (request.tools.length > 0 && request.tool_choice === 'none') setField('tool_choice', 'none');
    if (request.temperature !== null) setField('temperature', request.temperature);
    if (output_schema !== null && model.capabilities.supports_structured_output) {
      const strict = isStrict(output_schema);
      setField('text', { format: { type: 'json_schema', name: 'response', schema: output_schema, strict } });
    }
    for (const [key, value] of Object.entries(model.extra_body ?? {})) if (!RESERVED.has(key)) setField(key, value);
    if (request.effort !== null) {
      const others = model.extra_body?.reasoning;
      setField('reasoning', { ...(typeof others === 'object' ? others : null), effort: request.effort });
    }
    const name = fields.get('model') ?? JSON.stringify(model.wire_name);
    fields.delete('model');
    const tail = [']', ...[...fields].flatMap(([key, json]) => [`,${JSON.stringify(key)}:`, json]), '}'];
    // Without the first comma.
    return wrapText([`{"model":${name},"input":[`], encodeHistory(request), tail, 1);
  };
}

/** The items of one message; none if the wire can express none of its blocks. */
function encodeMessage(message: StoredMessage, model: ModelEntry, drop: Drop): object[] {
  if (message.role === 'assistant') return encodeAssistant(message, model, drop);
  if (message.role === 'tool') return encodeResult(message);
  const parts: object[] = [];
  for (const block of message.content) {
    if (block.type === 'text') {
      if (!isBlank(block.text)) parts.push({ type: 'input_text', text: block.text });
      continue;
    }
    const isSendable = block.type === 'image' || block.type === 'document';
    const reason = isSendable ? findUnsupported(block, message, model) : 'this wire has no such block';
    if (reason !== null || !isSendable) drop(message, block.type, reason ?? '');
    else parts.push(filePart(block));
  }
  if (parts.length === 0) return [];
  return [{ type: 'message', role: 'user', content: parts }];
}

function filePart(block: ImageBlock | DocumentBlock): object {
  const url = `data:${block.media_type};base64,${block.source.data}`;
  if (block.type === 'image') return { type: 'input_image', image_url: url, detail: 'auto' };
  return { type: 'input_file', filename: block.name, file_data: url };
}

/** Reasoning items stand where the provider sent them: before the text or the call that they led to. */
function encodeAssistant(message: StoredMessage, model: ModelEntry, drop: Drop): object[] {
  const reasoning = canSendReasoning(message, model) ? readReasoning(message.provider_raw) : [];
  return message.content.flatMap((block, at) => {
    const item = encodeAnswerBlock(block);
    if (item !== null) return [...reasoning.filter((one) => one.at === at).map((one) => one.item), item];
    if (block.type !== 'text') drop(message, block.type, 'this wire has no such block');
    return [];
  });
}

/** Null for a blank text and for a block that the wire does not have. */
function encodeAnswerBlock(block: ContentBlock): object | null {
  if (block.type === 'tool_use') {
    const { id: call_id, name, input } = block;
    return { type: 'function_call', call_id, name: sanitizeToolName(name), arguments: JSON.stringify(input) };
  }
  if (block.type !== 'text' || isBlank(block.text)) return null;
  return { type: 'message', role: 'assistant', content: [{ type: 'output_text', text: block.text }] };
}

/** Encrypted reasoning is readable for the model that wrote it. */
function canSendReasoning({ metadata }: StoredMessage, model: ModelEntry): boolean {
  return metadata.provider === getProvider(model.id) && metadata.model === model.id;
}

function encodeResult(message: StoredMessage): object[] {
  const result = message.content[0];
  if (result?.type !== 'tool_result') return [];
  const text = joinResult(result.content);
  return [callOutput(result.tool_use_id, text, result.is_error)];
}

/** The wire has no flag for an error. */
function callOutput(call_id: string, text: string, isError: boolean): object {
  const output = isError ? `[tool error] ${text}` : text;
  return { type: 'function_call_output', call_id, output };
}
