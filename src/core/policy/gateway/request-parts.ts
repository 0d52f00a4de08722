// Reads the parts of a request that routing and pricing need: images, documents, tools, the newest text of the user (19 §2.2).
import type { ClientWire } from '#protocol/client-wire.ts';
import { isMapping, toList, toMapping } from '../parsing/yaml.ts';
import { type OtherModel, type ProviderWork, readProviderWork } from './provider-work.ts';

interface RequestParts {
  readonly images: number;
  /** Bytes of images in the body. */
  readonly data_bytes: number;
  /** A tool or a conversation that the provider hosts: the size of the body does not bound what it adds to the prompt. */
  readonly unbounded: boolean;
  readonly work: ProviderWork;
  /** Of each message with images or files, by its index. */
  readonly items: ReadonlyMap<number, ItemSize>;
  readonly document_media_types: readonly string[];
  readonly text: string;
  readonly message_has_images: boolean;
  readonly has_system: boolean;
  readonly structured: boolean;
}

/** Content of a message other than text. */
export interface ItemSize {
  readonly images: number;
  /** Those of them given by URL, which may return another image the next time. */
  readonly remote_images: number;
  /** Bytes of images in the body. */
  readonly data_bytes: number;
  /** A file, or content that the provider stores: the size of the body does not bound it. */
  readonly unbounded: boolean;
  /** Names of tools whose definitions the provider writes into the prompt here. */
  readonly loaded_tools: readonly string[];
}

interface Found {
  images: number;
  remote_images: number;
  data_bytes: number;
  unbounded: boolean;
  /** A file given by URL, which may return other content the next time. */
  remote_file: boolean;
  readonly loaded_tools: string[];
  readonly documents: Set<string>;
}

type Json = Readonly<Record<string, unknown>>;

/** Maximum nesting of blocks: a tool's result has parts, and a search result has documents. */
const MAX_DEPTH = 6;
/** Members of a block that hold blocks. */
const INNER = ['content', 'output', 'tool_references', 'tool_changes', 'tool'];
const IMAGES: ReadonlySet<string> = new Set(['image', 'image_url', 'input_image', 'computer_screenshot']);
const DOCUMENTS: ReadonlySet<string> = new Set([
  'document',
  'file',
  'input_file',
  'input_audio',
  'audio_url',
  'video_url',
  'input_video',
  'image_generation_call',
  'container_upload',
  'item_reference',
]);
/** Members that hold an address, or an object with one. */
const ADDRESSED = ['image_url', 'file_url', 'video_url', 'audio_url', 'file'];
const INLINE = /^(data:|[A-Za-z0-9+/=\s]*$)/i;
/** Members of the body that make the provider add stored content. */
const KEPT_ELSEWHERE = ['container', 'previous_response_id', 'conversation', 'thread'];
/** Reads a body within the limits of `readRequestFacts`. Values of another shape count as absent. */
export function readParts(wire: ClientWire, body: Json): RequestParts {
  const documents = new Set<string>();
  const items = toList(wire === 'responses' ? body.input : body.messages);
  const sizes = new Map<number, ItemSize>();
  const found = createFound(documents);
  for (const part of toList(body.system)) inspectItem(part, found, 0);
  const work = readProviderWork(wire, body, items);
  // Results of tools and answers of other models are prompt of what follows.
  const adds = work.hosted !== null || work.unbounded.length > 0 || work.other_models.some(isAdvisor);
  const systemDocument = found.unbounded;
  for (const [index, item] of items.entries()) {
    const own = createFound(documents);
    inspectItem(item, own, 0);
    found.remote_file ||= own.remote_file;
    if (own.images === 0 && !own.unbounded && own.loaded_tools.length === 0) continue;
    sizes.set(index, own);
    found.images += own.images;
    found.data_bytes += own.data_bytes;
  }
  const asked = items.findLast((item) => isMapping(item) && item.role === 'user');
  const shown = createFound(new Set());
  inspectItem(asked, shown, 0);
  return {
    images: found.images,
    data_bytes: found.data_bytes,
    items: sizes,
    unbounded: systemDocument || found.remote_file || adds || KEPT_ELSEWHERE.some((key) => body[key] != null),
    work,
    document_media_types: [...documents],
    text: typeof body.input === 'string' ? body.input : readMessageText(asked),
    message_has_images: shown.images > 0,
    has_system: hasSystem(wire, body, items),
    structured: isStructured(wire, body),
  };
}

function isAdvisor({ role }: OtherModel): boolean {
  return role === 'advisor';
}

function createFound(documents: Set<string>): Found {
  const none = { images: 0, remote_images: 0, data_bytes: 0, unbounded: false, remote_file: false };
  return { ...none, loaded_tools: [], documents };
}

function inspectItem(item: unknown, found: Found, depth: number): void {
  if (!isMapping(item) || depth > MAX_DEPTH) return;
  const type = String(item.type ?? '');
  if (IMAGES.has(type)) {
    found.images++;
    if (isRemote(item)) found.remote_images++;
    found.data_bytes += countDataBytes(item);
  } else if (DOCUMENTS.has(type)) inspectDocument(item, found);
  else if (type === 'tool_reference') found.loaded_tools.push(String(item.tool_name ?? item.name));
  else if (isReference(item, type)) found.unbounded = true;
  for (const key of INNER) for (const inner of listBlocks(item[key])) inspectItem(inner, found, depth + 1);
}

function inspectDocument(item: Json, found: Found): void {
  const { source } = item;
  const { type, media_type } = toMapping(source);
  // The size of a text is its own bound.
  if (type !== 'text') found.unbounded = true;
  if (type === 'base64') found.documents.add(String(media_type));
  if (isRemote(item)) found.remote_file = true;
}

/** Whether the provider fetches the content from a URL when it reads the request. */
function isRemote(item: Json): boolean {
  const { source } = item;
  if (isMapping(source)) return source.type === 'url';
  return ADDRESSED.some((key) => {
    const url = readAddress(item[key]);
    return typeof url === 'string' && !INLINE.test(url);
  });
}

function readAddress(value: unknown): unknown {
  if (!isMapping(value)) return value;
  return value.url ?? value.file_url ?? value.file_data;
}

/** Whether the client sends only an id and the provider has the text. */
function isReference({ encrypted_content, content, audio }: Json, type: string): boolean {
  if (type === 'reasoning') return (encrypted_content ?? '') === '' && toList(content).length === 0;
  return isMapping(audio) && typeof audio.id === 'string';
}

/** Of an image that is in the body itself; JSON writes its base64 as it is. */
function countDataBytes(item: Json): number {
  const { source, image_url: url } = item;
  if (isMapping(source)) return measureText(source.data);
  if (isMapping(url)) return measureText(url.url);
  return measureText(url);
}

function measureText(value: unknown): number {
  if (typeof value !== 'string') return 0;
  return value.length;
}

function readMessageText(item: unknown): string {
  if (!isMapping(item)) return '';
  if (typeof item.content === 'string') return item.content;
  const text = toList(item.content).find((part) => isMapping(part) && typeof part.text === 'string');
  if (!isMapping(text)) return '';
  return String(text.text);
}

function hasSystem(wire: ClientWire, body: Json, items: readonly unknown[]): boolean {
  if (wire === 'messages') return toList(body.system).length > 0 || (body.system ?? '') !== '';
  if (wire === 'responses' && (body.instructions ?? '') !== '') return true;
  return items.some((item) => isMapping(item) && (item.role === 'system' || item.role === 'developer'));
}

function isStructured(wire: ClientWire, body: Json): boolean {
  if (wire === 'messages') return isMapping(body.output_config) && body.output_config.format != null;
  if (wire === 'chat') return isJsonSchema(body.response_format);
  return isMapping(body.text) && isJsonSchema(body.text.format);
}

function isJsonSchema(format: unknown): boolean {
  return isMapping(format) && format.type === 'json_schema';
}

/** Blocks in an array, or a single one. */
function listBlocks(value: unknown): readonly unknown[] {
  if (isMapping(value)) return [value];
  return toList(value);
}
