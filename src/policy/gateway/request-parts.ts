// What a request is made of, as routing and its price ask: images, documents, tools, the last words of the user (19 §2.2).
import type { ClientWire } from '../../domain/api/gateway.ts';
import { isMapping } from '../parsing/yaml.ts';

export interface RequestParts {
  readonly images: number;
  /** Bytes of images in the body. */
  readonly data_bytes: number;
  /** A file, a tool or a conversation of the provider's: no length of the body bounds what it adds to the prompt. */
  readonly unbounded: boolean;
  readonly document_media_types: readonly string[];
  readonly text: string;
  readonly message_has_images: boolean;
  readonly has_system: boolean;
  readonly structured: boolean;
}

interface Found {
  images: number;
  data_bytes: number;
  unbounded: boolean;
  readonly documents: Set<string>;
}

type Json = Readonly<Record<string, unknown>>;

/** Blocks within blocks: a tool's result holds parts. */
const MAX_DEPTH = 4;
const IMAGES: ReadonlySet<string> = new Set(['image', 'image_url', 'input_image']);
const DOCUMENTS: ReadonlySet<string> = new Set(['document', 'file', 'input_file', 'input_audio', 'container_upload']);
/** Tools that run where the model does: what they find is billed as prompt. */
const HOSTED =
  /^(web_search|web_fetch|code_execution|code_interpreter|file_search|mcp|image_generation|tool_search|search_result)/;
/** Of the body: what the provider keeps and adds by itself. */
const KEPT_ELSEWHERE = ['mcp_servers', 'container', 'previous_response_id', 'conversation', 'prompt'];

/** Reads a body within the limits of `requestFacts`. Whatever has another shape counts as not there. */
export function readParts(wire: ClientWire, body: Json): RequestParts {
  const found: Found = { images: 0, data_bytes: 0, unbounded: false, documents: new Set() };
  const items = list(wire === 'responses' ? body.input : body.messages);
  for (const item of items) look(item, found, 0);
  for (const part of list(body.system)) look(part, found, 0);
  const hosted = list(body.tools).some((tool) => isMapping(tool) && HOSTED.test(String(tool.type ?? '')));
  const asked = items.findLast((item) => isMapping(item) && item.role === 'user');
  const shown: Found = { images: 0, data_bytes: 0, unbounded: false, documents: new Set() };
  look(asked, shown, 0);
  return {
    images: found.images,
    data_bytes: found.data_bytes,
    unbounded: found.unbounded || hosted || KEPT_ELSEWHERE.some((key) => body[key] != null),
    document_media_types: [...found.documents],
    text: typeof body.input === 'string' ? body.input : textOf(asked),
    message_has_images: shown.images > 0,
    has_system: hasSystem(wire, body, items),
    structured: isStructured(wire, body),
  };
}

function look(item: unknown, found: Found, depth: number): void {
  if (!isMapping(item) || depth > MAX_DEPTH) return;
  const type = String(item.type ?? '');
  if (IMAGES.has(type)) {
    found.images++;
    found.data_bytes += dataBytes(item);
  } else if (DOCUMENTS.has(type)) {
    const { source } = item;
    // A text is as long as it is.
    if (!isMapping(source) || source.type !== 'text') found.unbounded = true;
    if (isMapping(source) && source.type === 'base64') found.documents.add(String(source.media_type));
  }
  for (const inner of [...list(item.content), ...list(item.output)]) look(inner, found, depth + 1);
}

/** Of an image that is in the body itself; JSON writes its base64 as it is. */
function dataBytes(item: Json): number {
  const { source, image_url: url } = item;
  if (isMapping(source)) return length(source.data);
  return isMapping(url) ? length(url.url) : length(url);
}

function length(value: unknown): number {
  return typeof value === 'string' ? value.length : 0;
}

function textOf(item: unknown): string {
  if (!isMapping(item)) return '';
  if (typeof item.content === 'string') return item.content;
  const text = list(item.content).find((part) => isMapping(part) && typeof part.text === 'string');
  return isMapping(text) ? String(text.text) : '';
}

function hasSystem(wire: ClientWire, body: Json, items: readonly unknown[]): boolean {
  if (wire === 'messages') return list(body.system).length > 0 || (body.system ?? '') !== '';
  if (wire === 'responses' && (body.instructions ?? '') !== '') return true;
  return items.some((item) => isMapping(item) && (item.role === 'system' || item.role === 'developer'));
}

function isStructured(wire: ClientWire, body: Json): boolean {
  if (wire === 'messages') return isMapping(body.output_config) && body.output_config.format != null;
  const { response_format, text } = body;
  const format = wire === 'chat' ? response_format : isMapping(text) ? text.format : null;
  return isMapping(format) && format.type === 'json_schema';
}

function list(value: unknown): readonly unknown[] {
  return Array.isArray(value) ? value : [];
}
