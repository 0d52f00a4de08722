// Decodes chunks of OpenAI Chat Completions and compatible servers into an assembly (11.6).
import type { StopReason } from '#protocol/message.ts';
import { type Assembly, readCount, type Slot } from './assembly.ts';
import { readChatBill } from './billed-parts.ts';
import type { CodecLog, Decoder } from './codec.ts';
import { createRefusal, createUnknownStop, fault, readWireError, toStreamFault, WireFault } from './fault.ts';
import {
  argumentsText,
  createObjectScan,
  type ObjectScan,
  parseArguments,
  readEventData,
  readName,
} from './provider-values.ts';

/** The fields read from a chunk; every field may be missing. */
interface Chunk {
  readonly id?: unknown;
  readonly model?: unknown;
  readonly choices?: readonly (Choice | null)[] | null;
  readonly usage?: WireUsage | null;
  readonly x_groq?: { readonly usage?: WireUsage | null } | null;
  readonly error?: unknown;
}
interface Choice {
  readonly index?: number;
  readonly delta?: {
    readonly content?: unknown;
    readonly refusal?: unknown;
    readonly tool_calls?: readonly (Fragment | null)[] | null;
    readonly function_call?: Fragment['function'];
  } | null;
  readonly finish_reason?: string | null;
  readonly error?: unknown;
}
interface Fragment {
  readonly index?: unknown;
  readonly id?: unknown;
  readonly function?: { readonly name?: unknown; readonly arguments?: unknown } | null;
}
interface WireUsage {
  readonly prompt_tokens?: unknown;
  readonly completion_tokens?: unknown;
  readonly prompt_cache_hit_tokens?: unknown;
  readonly prompt_tokens_details?: { readonly cached_tokens?: unknown; readonly cache_write_tokens?: unknown } | null;
  readonly completion_tokens_details?: { readonly reasoning_tokens?: unknown } | null;
}

export const OPENAI_STOP_REASONS: ReadonlyMap<string, StopReason> = new Map([
  ['stop', 'end_turn'],
  ['length', 'max_tokens'],
  ['tool_calls', 'tool_use'],
  ['function_call', 'tool_use'],
]);

interface Call {
  readonly slot: Slot;
  id: string | null;
  readonly scan: ObjectScan;
  /** Whether its arguments parse, once they are balanced. */
  parses: boolean | null;
}

export function createOpenAiDecoder(assembly: Assembly, remarks: CodecLog): Decoder {
  let textSlot: Slot | null = null;
  const calls: Call[] = [];
  /** The newest call of an index, the first one of an id. */
  const byIndex = new Map<number, Call>();
  const byId = new Map<string, Call>();
  let finishReason: string | null = null;

  function addText(text: string): void {
    if (text === '') return;
    textSlot ??= assembly.open('text');
    assembly.append(textSlot, text);
  }

  function addFragment(fragment: Fragment): void {
    const index = typeof fragment.index === 'number' ? fragment.index : null;
    const id = typeof fragment.id === 'string' && fragment.id !== '' ? fragment.id : null;
    const name = typeof fragment.function?.name === 'string' ? fragment.function.name : '';
    const given = fragment.function?.arguments;
    const value = { refused: null as string | null };
    let args = '';
    if (typeof given === 'string') args = given;
    else if (typeof given === 'object' && given !== null) args = argumentsText(value, given);
    const call = locate(index, id, name, args);
    const { slot } = call;
    slot.refused ??= value.refused;
    assembly.name(slot, name, id);
    assembly.append(slot, args);
    call.scan.feed(args);
  }

  /** The call a fragment belongs to, opened if it is new. */
  function locate(index: number | null, id: string | null, name: string, args: string): Call {
    let known: Call | undefined;
    if (index !== null) {
      known = byIndex.get(index);
      // Some servers give every call of a message the index 0.
      if (known && id !== null && known.id !== null && id !== known.id && beginsNewCall(known, name)) known = undefined;
    } else if (id !== null) known = byId.get(id);
    else {
      known = calls.at(-1);
      // Without index and id only a name starts a call, once the previous call is complete.
      if (known && (args !== '' || name !== known.slot.name) && beginsNewCall(known, name)) known = undefined;
    }
    if (known) {
      identify(known, id);
      return known;
    }
    // Text after a call starts a new block.
    if (textSlot !== null) assembly.close(textSlot);
    textSlot = null;
    const slot = assembly.open('tool');
    const call: Call = { slot, id: null, scan: createObjectScan(), parses: null };
    calls.push(call);
    if (index !== null) byIndex.set(index, call);
    identify(call, id);
    return call;
  }

  function identify(call: Call, id: string | null): void {
    if (id === null || call.id !== null) return;
    call.id = id;
    if (!byId.has(id)) byId.set(id, call);
  }

  function complete(reason: string): void {
    closeAll();
    if (reason === 'content_filter') throw createRefusal(reason);
    const mapped = OPENAI_STOP_REASONS.get(reason);
    // Compatible servers have names of their own for the end of an answer.
    if (mapped === undefined && assembly.slots.length === 0) throw createUnknownStop(reason);
    const whole = assembly.hasTools() ? 'tool_use' : 'end_turn';
    assembly.stop = { reason: mapped === 'max_tokens' ? mapped : whole, raw: reason };
  }

  function closeAll(): void {
    for (const { slot } of calls)
      if (slot.name === '') remarks.warn({ arguments_length: slot.text.length }, 'tool call without a name ignored');
    for (const slot of [...assembly.slots]) assembly.close(slot);
  }

  function end(): void {
    if (finishReason !== null) complete(finishReason);
  }

  return {
    event(data) {
      if (data === '[DONE]') {
        end();
        if (assembly.stop === null)
          throw new WireFault(fault('network', 'stream_truncated', 'the stream ended without a finish_reason'));
        return;
      }
      const chunk = readEventData(data) as Chunk | null;
      if (chunk === null || typeof chunk !== 'object') return;
      readChatBill(chunk as Readonly<Record<string, unknown>>, 'delta', assembly.bill);
      const usage = chunk.usage ?? chunk.x_groq?.usage;
      if (usage) readUsage(assembly, usage, remarks);
      const choice = chunk.choices?.[0];
      const error = readWireError(chunk) ?? readWireError(choice);
      if (error !== null) throw toStreamFault(error);
      assembly.servedModel = readName(chunk.model) ?? assembly.servedModel;
      assembly.responseId = readName(chunk.id) ?? assembly.responseId;
      if (!choice || (choice.index ?? 0) !== 0) return;
      const delta = choice.delta;
      if (delta) {
        if (delta.content) addText(contentText(delta.content));
        if (delta.refusal) addText(contentText(delta.refusal));
        if (Array.isArray(delta.tool_calls))
          for (const fragment of delta.tool_calls) if (fragment) addFragment(fragment);
        if (delta.function_call) addFragment({ function: delta.function_call });
      }
      if (typeof choice.finish_reason === 'string' && choice.finish_reason !== '') {
        if (choice.finish_reason === 'error')
          throw new WireFault(
            fault('server_error', 'finish_reason_error', 'the provider ended the answer with an error'),
          );
        finishReason = readName(choice.finish_reason) ?? 'unknown';
      }
    },
    end,
  };
}

/** Whether a named fragment starts a new call: the known call already has a name and complete arguments. */
function beginsNewCall(call: Call, name: string): boolean {
  const { slot, scan } = call;
  if (name === '' || slot.name === '' || !scan.isBalanced()) return false;
  // Parsed once: after a balanced text only white space keeps it balanced.
  call.parses ??= parseArguments(slot.text, false).error === null;
  return call.parses;
}

/** Text, or the text parts of a list; other parts are not part of the answer. */
function contentText(content: unknown): string {
  if (typeof content === 'string') return content;
  if (!Array.isArray(content)) return '';
  return content.map(partText).join('');
}

function partText(part: unknown): string {
  if (typeof part !== 'object' || part === null || !('text' in part) || typeof part.text !== 'string') return '';
  return part.text;
}

/** DeepSeek reports the count next to the prompt's count, possibly without details. */
export function cachedTokens(wire: WireUsage): number | null {
  return readCount(wire.prompt_tokens_details?.cached_tokens) ?? readCount(wire.prompt_cache_hit_tokens);
}

/** The prompt count includes cache reads and writes; the stored classes are disjoint. */
function readUsage(assembly: Assembly, wire: WireUsage, remarks: CodecLog): void {
  const { usage } = assembly;
  const prompt = readCount(wire.prompt_tokens);
  if (prompt !== null) {
    const read = cachedTokens(wire) ?? 0;
    const written = readCount(wire.prompt_tokens_details?.cache_write_tokens) ?? 0;
    if (read + written > prompt)
      remarks.warn(
        { prompt_tokens: prompt, cached: read, written },
        'the provider reports more cached than prompt tokens',
      );
    usage.input = Math.max(0, prompt - read - written);
    usage.cached = read;
    usage.creation = written;
  }
  usage.output = readCount(wire.completion_tokens) ?? usage.output;
  usage.reasoning = readCount(wire.completion_tokens_details?.reasoning_tokens) ?? usage.reasoning ?? 0;
}
