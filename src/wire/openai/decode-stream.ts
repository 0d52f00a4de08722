// Chunks of OpenAI Chat Completions, and of the many servers that resemble it, into an assembly (11.6).
import type { StopReason } from '../../domain/message.ts';
import { argumentsText, parseArguments } from '../arguments.ts';
import type { Assembly, Slot } from '../assembly.ts';
import type { Decoder } from '../decoder.ts';
import { fault, readWireError, streamFault, WireFault } from '../fault.ts';
import type { Remarks } from '../remarks.ts';
import { count } from '../usage-report.ts';

/** What is read of a chunk; everything from outside may be missing. */
interface Chunk {
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
  readonly prompt_tokens_details?: { readonly cached_tokens?: unknown; readonly cache_write_tokens?: unknown } | null;
  readonly completion_tokens_details?: { readonly reasoning_tokens?: unknown } | null;
}

export const STOP_REASONS: ReadonlyMap<string, StopReason> = new Map([
  ['stop', 'end_turn'],
  ['length', 'max_tokens'],
  ['tool_calls', 'tool_use'],
  ['function_call', 'tool_use'],
]);

export function createOpenAiDecoder(assembly: Assembly, remarks: Remarks): Decoder {
  let textSlot: Slot | null = null;
  const calls: { slot: Slot; index: number | null; id: string | null }[] = [];
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
    const args =
      typeof given === 'string'
        ? given
        : typeof given === 'object' && given !== null
          ? argumentsText(value, given)
          : '';
    const slot = locate(index, id, name, args);
    slot.refused ??= value.refused;
    assembly.name(slot, name, id);
    assembly.append(slot, args);
  }

  /** The call a fragment belongs to, opened if it is new. */
  function locate(index: number | null, id: string | null, name: string, args: string): Slot {
    let known: (typeof calls)[number] | undefined;
    if (index !== null) {
      known = calls.findLast((call) => call.index === index);
      // Servers exist that give every call of a message the index 0.
      if (known && id !== null && known.id !== null && id !== known.id && beginsAnother(known.slot, name))
        known = undefined;
    } else if (id !== null) known = calls.find((call) => call.id === id);
    else {
      known = calls.at(-1);
      // Without index and id only a name can begin a call, once the one before it is whole.
      if (known && (args !== '' || name !== known.slot.name) && beginsAnother(known.slot, name)) known = undefined;
    }
    if (known) {
      known.id ??= id;
      return known.slot;
    }
    // Text that resumes after a call is a new block.
    if (textSlot !== null) assembly.close(textSlot);
    textSlot = null;
    const slot = assembly.open('tool');
    calls.push({ slot, index, id });
    return slot;
  }

  function complete(reason: string): void {
    closeAll();
    const mapped = STOP_REASONS.get(reason) ?? 'end_turn';
    assembly.stop = { reason: mapped !== 'max_tokens' && assembly.hasTools() ? 'tool_use' : mapped, raw: reason };
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
      const chunk = JSON.parse(data) as Chunk | null;
      if (chunk === null || typeof chunk !== 'object') return;
      const usage = chunk.usage ?? chunk.x_groq?.usage;
      if (usage) readUsage(assembly, usage, remarks);
      const choice = chunk.choices?.[0];
      const error =
        chunk.error !== undefined || choice?.error !== undefined
          ? (readWireError(chunk) ?? readWireError(choice))
          : null;
      if (error !== null) throw streamFault(error);
      if (typeof chunk.model === 'string' && chunk.model !== '') assembly.servedModel = chunk.model;
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
        finishReason = choice.finish_reason;
      }
    },
    end,
  };
}

/** Whether a named fragment cannot belong to a call that already has a name and whole arguments. */
function beginsAnother(slot: Slot, name: string): boolean {
  return name !== '' && slot.name !== '' && slot.text !== '' && parseArguments(slot.text, false).error === null;
}

/** Text, or the text parts of a list; other parts are not part of the answer. */
function contentText(content: unknown): string {
  if (typeof content === 'string') return content;
  if (!Array.isArray(content)) return '';
  return content
    .map((part: unknown) =>
      typeof part === 'object' && part !== null && 'text' in part && typeof part.text === 'string' ? part.text : '',
    )
    .join('');
}

/** The prompt count contains what was read from and written to a cache; the classes we keep are disjoint. */
function readUsage(assembly: Assembly, wire: WireUsage, remarks: Remarks): void {
  const { usage } = assembly;
  const prompt = count(wire.prompt_tokens);
  if (prompt !== null) {
    const read = count(wire.prompt_tokens_details?.cached_tokens) ?? 0;
    const written = count(wire.prompt_tokens_details?.cache_write_tokens) ?? 0;
    if (read + written > prompt)
      remarks.warn(
        { prompt_tokens: prompt, cached: read, written },
        'the provider reports more cached than prompt tokens',
      );
    usage.input = Math.max(0, prompt - read - written);
    usage.cached = read;
    usage.creation = written;
  }
  usage.output = count(wire.completion_tokens) ?? usage.output;
  usage.reasoning = count(wire.completion_tokens_details?.reasoning_tokens) ?? usage.reasoning ?? 0;
}
