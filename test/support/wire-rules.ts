// What the two providers refuse with a 400, as far as it concerns what we send: a fake that is as strict as they are.
import type { FakeAnswer, FakeCall } from './fake-provider.ts';
import { schemaViolations } from './tool-schema-rules.ts';

type Json = Readonly<Record<string, unknown>>;

const TOOL_ID = { anthropic: /^[a-zA-Z0-9_-]+$/, openai: /^[a-zA-Z0-9_-]{1,40}$/ };
const TOOL_NAME = { anthropic: /^[a-zA-Z0-9_-]{1,128}$/, openai: /^[a-zA-Z0-9_-]{1,64}$/ };
const FIELDS = {
  anthropic:
    'model max_tokens stream system tools tool_choice stop_sequences thinking temperature output_config messages',
  openai:
    'model messages stream stream_options max_completion_tokens tools stop temperature response_format reasoning_effort',
};
const IMAGES = ['image/png', 'image/jpeg', 'image/gif', 'image/webp'];
const MAX_MARKS = 4;

/** Wraps answers: a request that breaks a rule of its wire is refused, naming every rule it breaks. */
export function strictly(
  answer: (call: FakeCall) => FakeAnswer | Promise<FakeAnswer>,
): (call: FakeCall) => FakeAnswer | Promise<FakeAnswer> {
  return (call) => {
    const broken = violations(call);
    if (broken.length === 0) return answer(call);
    return { status: 400, error: { type: 'invalid_request_error', message: broken.join('; ') } };
  };
}

/** One line for each rule that the request breaks. */
export function violations(call: FakeCall): string[] {
  const { wire, body } = call;
  const out: string[] = [];
  const allowed = FIELDS[wire].split(' ');
  for (const key of Object.keys(body)) if (!allowed.includes(key)) out.push(`${key}: extra inputs are not permitted`);
  if (typeof body.model !== 'string' || body.model === '') out.push('model: required');
  if (body.stream !== true) out.push('stream: must be true');
  // Half of a surrogate pair is no text; where both halves stand, JSON.stringify writes the character itself.
  if (/(?<!\\)(?:\\\\)*\\ud[89a-f]/i.test(call.text)) out.push('body: no low surrogate in string');
  const limit = wire === 'anthropic' ? body.max_tokens : body.max_completion_tokens;
  if (!Number.isInteger(limit) || (limit as number) < 1) out.push('max tokens: must be a whole number from 1');
  out.push(...toolRules(call));
  out.push(...(wire === 'anthropic' ? anthropicRules(body) : openAiRules(body)));
  return out;
}

function toolRules({ wire, body }: FakeCall): string[] {
  if (body.tools === undefined) return [];
  const tools = body.tools as Json[];
  const out: string[] = tools.length === 0 ? ['tools: must not be empty'] : [];
  const names = new Set<string>();
  for (const tool of tools) {
    const definition = wire === 'anthropic' ? tool : (tool.function as Json);
    const name = String(definition.name);
    if (!TOOL_NAME[wire].test(name)) out.push(`tools: ${name}: bad name`);
    if (names.has(name)) out.push(`tools: ${name}: not unique`);
    names.add(name);
    if (typeof definition.description !== 'string' || definition.description === '')
      out.push(`tools: ${name}: no description`);
    const schema = (wire === 'anthropic' ? definition.input_schema : definition.parameters) as Json;
    out.push(...schemaViolations(wire, schema).map((line) => `tools: ${name}: ${line}`));
  }
  return out;
}

function anthropicRules(body: Json): string[] {
  const out: string[] = [];
  const messages = body.messages as Json[];
  if (messages[0]?.role !== 'user') out.push('messages: first message must use the user role');
  let open: string[] = [];
  const seen = new Set<string>();
  messages.forEach(({ role, content }, i) => {
    const at = `messages.${i}`;
    if (role !== 'user' && role !== 'assistant') out.push(`${at}: unexpected role ${role}`);
    if (!Array.isArray(content) || content.length === 0) {
      out.push(`${at}: content must not be empty`);
      return;
    }
    const blocks = content as Json[];
    const results = blocks.filter((b) => b.type === 'tool_result');
    const answered = results.map((b) => String(b.tool_use_id));
    for (const id of open)
      if (!answered.includes(id)) out.push(`${at}: tool_use ids were found without tool_result blocks: ${id}`);
    for (const id of answered) if (!open.includes(id)) out.push(`${at}: unexpected tool_use_id: ${id}`);
    if (new Set(answered).size < answered.length) out.push(`${at}: each tool_use must have a single result`);
    if (blocks.slice(0, results.length).some((b) => b.type !== 'tool_result'))
      out.push(`${at}: tool_result blocks must come first`);
    open = [];
    for (const block of blocks) {
      out.push(...anthropicBlock(block, String(role)).map((line) => `${at}: ${line}`));
      if (block.type !== 'tool_use') continue;
      const id = String(block.id);
      if (seen.has(id)) out.push(`${at}: tool_use ids must be unique: ${id}`);
      seen.add(id);
      open.push(id);
    }
  });
  if (open.length > 0) out.push(`messages: tool_use ids without tool_result at the end: ${open.join(', ')}`);
  if (messages.at(-1)?.role !== 'user') out.push('messages: must end with a user message');

  const system = (body.system ?? []) as Json[];
  for (const part of system) if (String(part.text).trim() === '') out.push('system: text must not be empty');
  const parts = [...system, ...((body.tools ?? []) as Json[]), ...messages.flatMap((m) => m.content as Json[])];
  const marks = parts.filter((part) => part.cache_control !== undefined);
  if (marks.length > MAX_MARKS) out.push(`cache_control: ${marks.length} blocks`);
  return out;
}

function anthropicBlock(block: Json, role: string): string[] {
  const only = (wanted: string, ok: boolean, why: string) => [
    ...(role === wanted || wanted === 'any' ? [] : [`${block.type} is not permitted in a ${role} message`]),
    ...(ok ? [] : [`${block.type}: ${why}`]),
  ];
  const marked = block.cache_control !== undefined;
  switch (block.type) {
    case 'text':
      return only('any', typeof block.text === 'string' && block.text.trim() !== '', 'must be non-empty');
    case 'image':
      return only('user', isBase64(block.source), 'bad source');
    case 'document':
      return only('user', (block.source as Json | undefined)?.type === 'base64', 'bad source');
    case 'tool_use': {
      const input = typeof block.input === 'object' && block.input !== null && !Array.isArray(block.input);
      const named = TOOL_ID.anthropic.test(String(block.id)) && TOOL_NAME.anthropic.test(String(block.name));
      return only('assistant', input && named, 'bad id, name or input');
    }
    case 'tool_result': {
      const content = block.content as Json[] | undefined;
      const inner = (content ?? []).flatMap((part) =>
        part.type === 'text' || part.type === 'image' ? anthropicBlock(part, 'user') : [`${part.type} in a result`],
      );
      // The API wants an empty result without content, and some content for a failed one.
      const full = content === undefined ? block.is_error !== true : content.length > 0;
      return [...only('user', full, 'content is empty'), ...inner];
    }
    case 'thinking':
      return only('assistant', Boolean(block.signature) && !marked, 'needs a signature and takes no cache_control');
    case 'redacted_thinking':
      return only('assistant', Boolean(block.data) && !marked, 'needs data and takes no cache_control');
    default:
      return [`${block.type}: unknown block`];
  }
}

function isBase64(source: unknown): boolean {
  const { type, media_type, data } = (source ?? {}) as Json;
  return type === 'base64' && IMAGES.includes(String(media_type)) && /^[A-Za-z0-9+/]+={0,2}$/.test(String(data));
}

function openAiRules(body: Json): string[] {
  const out: string[] = [];
  const messages = body.messages as Json[];
  let open: string[] = [];
  messages.forEach((message, i) => {
    const at = `messages[${i}]`;
    const { role, content } = message;
    if (role === 'tool') {
      const id = String(message.tool_call_id);
      if (!open.includes(id))
        out.push(`${at}: 'tool' must be a response to a preceding message with 'tool_calls': ${id}`);
      if (typeof content !== 'string') out.push(`${at}: content must be a string`);
      open = open.filter((other) => other !== id);
      return;
    }
    if (open.length > 0) out.push(`${at}: tool_call_ids did not have response messages: ${open.join(', ')}`);
    open = [];
    if (role === 'system') {
      if (i > 0 || typeof content !== 'string' || content === '') out.push(`${at}: one system text at the start`);
    } else if (role === 'user') out.push(...userParts(content).map((line) => `${at}: ${line}`));
    else if (role === 'assistant') {
      const calls = (message.tool_calls ?? []) as Json[];
      if (message.tool_calls !== undefined && calls.length === 0) out.push(`${at}: tool_calls must not be empty`);
      if (calls.length === 0 && typeof content !== 'string') out.push(`${at}: content or tool_calls required`);
      for (const call of calls) {
        const { name, arguments: args } = call.function as Json;
        if (call.type !== 'function' || !TOOL_ID.openai.test(String(call.id)) || !TOOL_NAME.openai.test(String(name)))
          out.push(`${at}: bad tool call`);
        if (typeof args !== 'string' || !isObject(args)) out.push(`${at}: arguments must be the text of an object`);
        open.push(String(call.id));
      }
    } else out.push(`${at}: unexpected role ${role}`);
  });
  if (open.length > 0) out.push(`messages: tool_call_ids without response at the end: ${open.join(', ')}`);
  return out;
}

function userParts(content: unknown): string[] {
  if (typeof content === 'string') return content === '' ? ['empty content'] : [];
  if (!Array.isArray(content) || content.length === 0) return ['empty content'];
  return (content as Json[]).flatMap((part) => {
    if (part.type === 'text') return typeof part.text === 'string' ? [] : ['text part without text'];
    if (part.type === 'file') {
      const { filename, file_data } = (part.file ?? {}) as Json;
      return typeof filename === 'string' && /^data:application\/pdf;base64,[A-Za-z0-9+/]+=*$/.test(String(file_data))
        ? []
        : ['bad file part'];
    }
    const { url } = (part.image_url ?? {}) as Json;
    const [, type, data] = /^data:([^;]+);base64,(.+)$/.exec(String(url)) ?? [];
    return part.type === 'image_url' && isBase64({ type: 'base64', media_type: type, data }) ? [] : ['bad part'];
  });
}

function isObject(json: string): boolean {
  const value: unknown = JSON.parse(json);
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}
