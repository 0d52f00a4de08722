// What a recorded body says, read a second time and in another way than the adapters read it: whole arrays, filtered.

interface Block {
  readonly type: string;
  readonly [field: string]: unknown;
}

export interface Reading {
  /** Blocks without ids. */
  readonly content: readonly Block[];
  readonly stop: string | null;
  readonly rawStop: string | null;
  /** Null = none was reported. */
  readonly usage: {
    readonly input: number;
    readonly cached: number;
    readonly creation: number;
    readonly creation1h: number;
    readonly output: number | null;
    readonly reasoning: number;
  } | null;
  readonly complete: boolean;
  readonly error: boolean;
  readonly model: string | null;
}

/** The data of every event that has arrived whole. */
function events<T>(body: string): T[] {
  return body
    .split(/\r?\n/)
    .filter((line) => line.startsWith('data:'))
    .flatMap((line) => {
      try {
        return [JSON.parse(line.slice(5)) as T];
      } catch {
        return [];
      }
    });
}

function parsedInput(json: string, whole: boolean): unknown {
  if (json === '' && whole) return {};
  try {
    return JSON.parse(json);
  } catch {
    return {};
  }
}

interface AnthropicUsage {
  input_tokens?: number | null;
  output_tokens?: number | null;
  cache_read_input_tokens?: number | null;
  cache_creation_input_tokens?: number | null;
  cache_creation?: { ephemeral_1h_input_tokens: number } | null;
  output_tokens_details?: { thinking_tokens: number } | null;
}
interface AnthropicBlock {
  type: string;
  name?: string;
  text?: string;
  thinking?: string;
  signature?: string;
  partial_json?: string;
  stop_reason?: string;
}
interface AnthropicEvent {
  type: string;
  index?: number;
  message?: { model: string; usage?: AnthropicUsage };
  content_block?: AnthropicBlock;
  delta?: AnthropicBlock;
  usage?: AnthropicUsage;
}

export function readAnthropic(body: string): Reading {
  const all = events<AnthropicEvent>(body);
  const starts = all.filter((e) => e.type === 'content_block_start');
  const content = starts.flatMap((start): Block[] => {
    const block = start.content_block!;
    const same = all.filter((e) => e.index === start.index);
    const deltas = same.filter((e) => e.type === 'content_block_delta').map((e) => e.delta!);
    const stopped = same.some((e) => e.type === 'content_block_stop');
    const joined = (key: 'text' | 'thinking' | 'signature') => [block, ...deltas].map((d) => d[key] ?? '').join('');
    switch (block.type) {
      case 'text':
        return joined('text') === '' ? [] : [{ type: 'text', text: joined('text') }];
      case 'thinking': {
        const thinking = {
          type: 'thinking',
          text: joined('thinking'),
          signature: (stopped && joined('signature')) || null,
        };
        return thinking.text === '' && thinking.signature === null ? [] : [thinking];
      }
      case 'tool_use': {
        const json = deltas.map((d) => d.partial_json ?? '').join('');
        return [{ type: 'tool_use', name: block.name, input: parsedInput(json, stopped) }];
      }
      default:
        return [];
    }
  });
  const reports = all.map((e) => e.message?.usage ?? e.usage).filter((u) => u !== undefined);
  const given = (u: AnthropicUsage) => Object.fromEntries(Object.entries(u).filter(([, v]) => v !== null));
  const usage: AnthropicUsage = Object.assign({}, ...reports.map(given));
  const rawStop = all.findLast((e) => e.type === 'message_delta')?.delta?.stop_reason ?? null;
  const plain = rawStop === 'pause_turn' ? 'tool_use' : rawStop;
  return {
    content,
    rawStop,
    stop: plain === 'end_turn' && content.some((b) => b.type === 'tool_use') ? 'tool_use' : plain,
    usage:
      reports.length === 0
        ? null
        : {
            input: usage.input_tokens!,
            cached: usage.cache_read_input_tokens ?? 0,
            creation: usage.cache_creation_input_tokens ?? 0,
            creation1h: usage.cache_creation?.ephemeral_1h_input_tokens ?? 0,
            output: all.some((e) => e.type === 'message_delta') ? usage.output_tokens! : null,
            reasoning: usage.output_tokens_details?.thinking_tokens ?? 0,
          },
    complete: all.some((e) => e.type === 'message_stop'),
    error: all.some((e) => e.type === 'error'),
    model: all.find((e) => e.type === 'message_start')?.message?.model ?? null,
  };
}

interface ChatUsage {
  prompt_tokens: number;
  completion_tokens: number;
  prompt_tokens_details?: { cached_tokens?: number; cache_write_tokens?: number } | null;
  completion_tokens_details?: { reasoning_tokens?: number } | null;
}
interface ChatFragment {
  index: number;
  function?: { name?: string; arguments?: string };
}
interface ChatChunk {
  model?: string;
  error?: unknown;
  usage?: ChatUsage | null;
  x_groq?: { usage?: ChatUsage };
  choices?: {
    delta?: { content?: string | null; tool_calls?: ChatFragment[] };
    finish_reason?: string | null;
  }[];
}

export function readChat(body: string): Reading {
  const all = events<ChatChunk>(body);
  const failedAt = all.findIndex((e) => e.error !== undefined);
  const before = failedAt < 0 ? all : all.slice(0, failedAt);
  const choices = before.map((e) => e.choices?.[0]).filter((c) => c !== undefined);
  const text = choices.map((c) => c.delta?.content ?? '').join('');
  const rawStop = choices.findLast((c) => c.finish_reason)?.finish_reason ?? null;
  const fragments = choices.flatMap((c) => c.delta?.tool_calls ?? []);
  const tools = [...new Set(fragments.map((f) => f.index))].map((index) => {
    const own = fragments.filter((f) => f.index === index);
    const json = own.map((f) => f.function?.arguments ?? '').join('');
    return {
      type: 'tool_use',
      name: own.find((f) => f.function?.name)?.function?.name,
      input: parsedInput(json, rawStop !== null),
    };
  });
  const last = all
    .map((e) => e.usage ?? e.x_groq?.usage)
    .filter((u) => u !== undefined && u !== null)
    .at(-1);
  const cached = last?.prompt_tokens_details?.cached_tokens ?? 0;
  const creation = last?.prompt_tokens_details?.cache_write_tokens ?? 0;
  const stops: Record<string, string> = { stop: 'end_turn', length: 'max_tokens', tool_calls: 'tool_use' };
  return {
    content: [...(text === '' ? [] : [{ type: 'text', text }]), ...tools],
    rawStop,
    stop: rawStop === null ? null : tools.length > 0 && rawStop !== 'length' ? 'tool_use' : stops[rawStop]!,
    usage:
      last === undefined
        ? null
        : {
            input: last.prompt_tokens - cached - creation,
            cached,
            creation,
            creation1h: 0,
            output: last.completion_tokens,
            reasoning: last.completion_tokens_details?.reasoning_tokens ?? 0,
          },
    complete: failedAt < 0 && rawStop !== null,
    error: failedAt >= 0,
    model: before.findLast((e) => e.model)?.model ?? null,
  };
}
