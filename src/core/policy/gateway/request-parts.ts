// Reads the parts of a request that routing and pricing need: images, documents, tools, the newest text of the user (19 §2.2).
import type { ClientWire } from '#protocol/client-wire.ts';
import { isMapping } from '../parsing/yaml.ts';

// The models that a request lets its provider ask beside the one of the call (19 §2.5).

export interface OtherModel {
  /** Empty where the provider or the model of the call chooses it. */
  readonly name: string;
  /** `advisor` is asked in the midst of the answer, `fallback` in place of the model of the call. */
  readonly role: 'advisor' | 'fallback';
  /** How often it may be asked; null = as often as the model of the call likes. */
  readonly uses: number | null;
  /** Bound of its answer; null = the model's own. */
  readonly output_tokens: number | null;
  /** The member of the body that names it. */
  readonly member: string;
}

const ADVISOR = /(^|:)advisor/;
/** Tools whose work is another model's, which the provider chooses. */
const ASKS_MODELS = /^openrouter:(subagent|fusion|image_generation)/;
/** Tokens of a prompt from which a provider summarises it, where the request does not say. */
const LEAST_COMPACTED = 50_000;

function readOtherModels(body: Json, tools: readonly Json[]): OtherModel[] {
  return [
    ...tools.flatMap(readToolModels),
    ...readNamedModels('fallbacks', body.fallbacks),
    ...readNamedModels('models', body.models),
    // What the provider keeps under this name may be any model.
    ...(body.preset == null ? [] : [createFallback('preset', '')]),
  ];
}

/** Tokens of a prompt from which the provider writes a summary of it before it answers; null = never. */
function readCompactionThreshold({ context_management }: Json): number | null {
  const given = isMapping(context_management) ? context_management.edits : context_management;
  const edits = toList(given).filter(isMapping);
  const thresholds = edits
    .filter(({ type }) => typeof type === 'string' && type.startsWith('compact'))
    .map(({ trigger, compact_threshold }) => readCount(isMapping(trigger) ? trigger.value : compact_threshold));
  if (thresholds.length === 0) return null;
  return Math.min(...thresholds.map((tokens) => tokens ?? LEAST_COMPACTED));
}

function readToolModels(tool: Json): OtherModel[] {
  const { type } = tool;
  if (typeof type !== 'string') return [];
  if (ASKS_MODELS.test(type)) return [{ name: '', role: 'advisor', uses: 1, output_tokens: null, member: 'tools' }];
  if (!ADVISOR.test(type)) return [];
  const given = isMapping(tool.parameters) ? tool.parameters : tool;
  const name = typeof given.model === 'string' ? given.model : '';
  const output_tokens = readCount(given.max_tokens) ?? readCount(given.max_completion_tokens);
  return [{ name, role: 'advisor', uses: readCount(given.max_uses), output_tokens, member: 'tools' }];
}

/** Names alone, or objects with a name. */
function readNamedModels(member: string, entries: unknown): OtherModel[] {
  return toList(entries).flatMap((entry) => {
    if (typeof entry === 'string') return [createFallback(member, entry)];
    if (!isMapping(entry) || typeof entry.model !== 'string') return [];
    return [{ ...createFallback(member, entry.model), output_tokens: readCount(entry.max_tokens) }];
  });
}

function createFallback(member: string, name: string): OtherModel {
  return { name, role: 'fallback', uses: 1, output_tokens: null, member };
}

interface RequestParts {
  readonly images: number;
  /** Bytes of images in the body. */
  readonly data_bytes: number;
  /** A tool or a conversation of the provider's: no length of the body bounds what it adds to the prompt. */
  readonly unbounded: boolean;
  /** Models that the provider may ask beside the one of the call. */
  readonly other_models: readonly OtherModel[];
  /** Tokens of the prompt from which the provider writes a summary of it first; null = never. */
  readonly compacted_from: number | null;
  /** Of each message with images or files, by its index. */
  readonly items: ReadonlyMap<number, ItemSize>;
  readonly document_media_types: readonly string[];
  readonly text: string;
  readonly message_has_images: boolean;
  readonly has_system: boolean;
  readonly structured: boolean;
}

/** What a message holds beside its text. */
export interface ItemSize {
  readonly images: number;
  /** Of them those behind an address, which may show another image the next time. */
  readonly remote_images: number;
  /** Bytes of images in the body. */
  readonly data_bytes: number;
  /** A file, or what the provider keeps: no length of the body bounds it. */
  readonly unbounded: boolean;
  /** Names of tools whose definitions the provider writes into the prompt here. */
  readonly loaded_tools: readonly string[];
}

interface Found {
  images: number;
  remote_images: number;
  data_bytes: number;
  unbounded: boolean;
  /** A file behind an address, which may be another one the next time. */
  remote_file: boolean;
  readonly loaded_tools: string[];
  readonly documents: Set<string>;
}

type Json = Readonly<Record<string, unknown>>;

/** Blocks within blocks: a tool's result holds parts, and the result of a search the documents it found. */
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
/** Tools that run at the client. A tool of any other type runs at the provider: its results are billed as prompt. */
const RUN_BY_CLIENT =
  /^(function|custom|namespace|local_shell|apply_patch|bash_\d+|text_editor_\d+|memory_\d+|browser_toolset_\d+|computer(_\d+|_use_preview|_toolset_\d+)?)$/;
/** Of the body: what the provider keeps and adds by itself. */
const KEPT_ELSEWHERE = [
  'mcp_servers',
  'container',
  'previous_response_id',
  'conversation',
  'prompt',
  'web_search_options',
  'search_parameters',
];
/** Ends the name of a model whose provider searches the web for it. */
const SEARCHING = /:online$/;

/** Reads a body within the limits of `readRequestFacts`. Values of another shape count as absent. */
export function readParts(wire: ClientWire, body: Json): RequestParts {
  const documents = new Set<string>();
  const items = toList(wire === 'responses' ? body.input : body.messages);
  const sizes = new Map<number, ItemSize>();
  const found = createFound(documents);
  for (const part of toList(body.system)) inspectItem(part, found, 0);
  const tools = toList(body.tools).filter(isMapping);
  const hosted = tools.some(isHosted) || toList(body.plugins).length > 0 || SEARCHING.test(String(body.model));
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
    unbounded: systemDocument || found.remote_file || hosted || KEPT_ELSEWHERE.some((key) => body[key] != null),
    other_models: readOtherModels(body, tools),
    compacted_from: readCompactionThreshold(body),
    document_media_types: [...documents],
    text: typeof body.input === 'string' ? body.input : readMessageText(asked),
    message_has_images: shown.images > 0,
    has_system: hasSystem(wire, body, items),
    structured: isStructured(wire, body),
  };
}

function isHosted({ type, environment, execution }: Json): boolean {
  if (type == null || (type === 'tool_search' && execution === 'client')) return false;
  // A shell runs in a container of the provider unless the request sets another environment.
  if (type === 'shell') return !isMapping(environment) || environment.type !== 'local';
  return typeof type !== 'string' || !RUN_BY_CLIENT.test(type);
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
  const given = isMapping(source) ? source.type : null;
  // A text is as long as it is.
  if (given !== 'text') found.unbounded = true;
  if (given === 'base64' && isMapping(source)) found.documents.add(String(source.media_type));
  if (isRemote(item)) found.remote_file = true;
}

/** What a provider fetches from an address when it reads the request. */
function isRemote(item: Json): boolean {
  const { source } = item;
  if (isMapping(source)) return source.type === 'url';
  return ADDRESSED.some((key) => {
    const value = item[key];
    const url = isMapping(value) ? (value.url ?? value.file_url ?? value.file_data) : value;
    return typeof url === 'string' && !INLINE.test(url);
  });
}

/** The client sends the id alone, and the provider keeps the text. */
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

function toList(value: unknown): readonly unknown[] {
  if (!Array.isArray(value)) return [];
  return value;
}

// Counts in a client's body.

/** A whole number from 1, however it is written. */
export function readCount(value: unknown): number | null {
  if (typeof value !== 'number' || !Number.isSafeInteger(value) || value < 1) return null;
  return value;
}
