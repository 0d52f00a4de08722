// Decodes server-sent events of OpenAI Responses into an assembly (22 §4).
import { type Assembly, BLOCK_WEIGHT, readCount, type Slot } from './assembly.ts';
import { readResponsesBill, readResponsesItem } from './billed-parts.ts';
import type { CodecLog, Decoder } from './codec.ts';
import { createRefusal, fault, readWireError, toStreamFault, WireFault } from './fault.ts';
import { readEventData, readName } from './provider-values.ts';
import { keepReasoning, type ReasoningItem } from './reasoning-items.ts';

/** Fields of all events in one shape; every field may be missing. */
interface WireEvent {
  readonly type?: string;
  readonly output_index?: unknown;
  readonly delta?: unknown;
  readonly arguments?: unknown;
  readonly item?: WireItem | null;
  readonly response?: WireResponse | null;
}
interface WireItem {
  readonly type?: unknown;
  readonly name?: unknown;
  readonly call_id?: unknown;
  readonly arguments?: unknown;
  readonly content?: unknown;
  readonly [key: string]: unknown;
}
interface WireResponse {
  readonly id?: unknown;
  readonly model?: unknown;
  readonly status?: unknown;
  readonly error?: unknown;
  readonly incomplete_details?: { readonly reason?: unknown } | null;
  readonly usage?: WireUsage | null;
}
interface WireUsage {
  readonly input_tokens?: unknown;
  readonly input_tokens_details?: { readonly cached_tokens?: unknown; readonly cache_write_tokens?: unknown } | null;
  readonly output_tokens?: unknown;
  readonly output_tokens_details?: { readonly reasoning_tokens?: unknown } | null;
}

/** Characters of all reasoning items of an answer; what is longer is not sent back. */
const MAX_REASONING = 1024 * 1024;
/** Reasoning items of an answer that are sent back: each is placed among all blocks. */
const MAX_ITEMS = 500;

export function createResponsesDecoder(assembly: Assembly, remarks: CodecLog): Decoder {
  /** By the provider's index; null = an item that canonical messages do not have. */
  const items = new Map<number, Slot | null>();
  /** Each with the number of blocks before it. */
  const reasoning: { readonly slots: number; readonly item: WireItem }[] = [];
  let reasoningSize = 0;

  function open(index: number, item: WireItem): void {
    const kind = item.type;
    if (kind === 'message') items.set(index, assembly.open('text'));
    else if (kind === 'function_call') {
      const slot = assembly.open('tool');
      assembly.name(slot, toText(item.name), readName(item.call_id));
      items.set(index, slot);
    } else {
      assembly.weigh(BLOCK_WEIGHT);
      if (kind !== 'reasoning') remarks.debug({ item_type: readName(kind) }, 'output item of an unknown type ignored');
      items.set(index, null);
    }
  }

  function close(index: number, item: WireItem): void {
    if (!items.has(index)) open(index, item);
    const slot = items.get(index);
    if (item.type === 'reasoning') keepItem(item);
    if (!slot) return;
    // A compatible server may send the whole item and no deltas.
    if (slot.text === '') assembly.append(slot, slot.kind === 'tool' ? toText(item.arguments) : contentText(item));
    assembly.close(slot);
  }

  /** Only encrypted reasoning can be sent back: the provider has stored nothing. */
  function keepItem(item: WireItem): void {
    if (typeof item.encrypted_content !== 'string') return;
    const { status: _, ...sent } = item;
    const size = JSON.stringify(sent).length;
    assembly.weigh(size);
    reasoningSize += size;
    if (reasoningSize <= MAX_REASONING && reasoning.length < MAX_ITEMS)
      reasoning.push({ slots: assembly.slots.length, item: sent });
  }

  function extend(event: WireEvent): void {
    const slot = items.get(itemIndex(event));
    if (slot) assembly.append(slot, toText(event.delta));
  }

  function readResponse(response: WireResponse | null | undefined): void {
    if (!response) return;
    assembly.servedModel = readName(response.model) ?? assembly.servedModel;
    assembly.responseId = readName(response.id) ?? assembly.responseId;
    if (response.usage) readUsage(assembly, response.usage);
    readResponsesBill(response, assembly.bill);
  }

  /** Blocks without content have no place in the message. */
  function placeItem({ slots, item }: (typeof reasoning)[number]): ReasoningItem {
    return { at: assembly.slots.slice(0, slots).filter((slot) => slot.index >= 0).length, item };
  }

  function complete(raw: string, reason: 'end_turn' | 'max_tokens'): void {
    for (const slot of assembly.slots) assembly.close(slot);
    assembly.providerRaw = keepReasoning(reasoning.map(placeItem));
    assembly.stop = { reason: reason === 'end_turn' && assembly.hasTools() ? 'tool_use' : reason, raw };
  }

  function completeIncomplete(response: WireResponse | null | undefined): void {
    const reason = readName(response?.incomplete_details?.reason) ?? 'unknown';
    if (reason === 'max_output_tokens') complete(reason, 'max_tokens');
    else throw createRefusal(reason);
  }

  return {
    event(data) {
      const event = readEventData(data) as WireEvent | null;
      switch (event?.type) {
        case 'response.output_text.delta':
        case 'response.refusal.delta':
        case 'response.function_call_arguments.delta':
          extend(event);
          return;
        case 'response.output_item.added':
          readResponsesItem(event.item, assembly.bill);
          if (event.item) open(itemIndex(event), event.item);
          return;
        case 'response.output_item.done':
          readResponsesItem(event.item, assembly.bill);
          if (event.item) close(itemIndex(event), event.item);
          return;
        case 'response.created':
          readResponse(event.response);
          return;
        case 'response.completed':
          readResponse(event.response);
          complete('completed', 'end_turn');
          return;
        case 'response.incomplete':
          readResponse(event.response);
          completeIncomplete(event.response);
          return;
        case 'response.failed':
          readResponse(event.response);
          throw toStreamFault(readWireError(event.response) ?? UNNAMED);
        default: {
          const error = readWireError(event?.type === 'error' && !hasError(event) ? { error: event } : event);
          if (error !== null) throw toStreamFault(error);
        }
      }
    },
    end() {
      throw new WireFault(fault('network', 'stream_truncated', 'the stream ended before the response was complete'));
    },
  };
}

const UNNAMED = { type: null, code: null, status: null, message: 'the provider reported an error' };

function hasError(event: object): boolean {
  return 'error' in event && event.error != null;
}

function itemIndex({ output_index }: WireEvent): number {
  if (typeof output_index === 'number') return output_index;
  return 0;
}

function toText(value: unknown): string {
  if (typeof value === 'string') return value;
  return '';
}

/** Text and refusal of a whole message item. */
function contentText({ content }: WireItem): string {
  if (!Array.isArray(content)) return '';
  return content
    .map((part: { readonly text?: unknown; readonly refusal?: unknown } | null) => toText(part?.text ?? part?.refusal))
    .join('');
}

/** The prompt count includes cache reads and writes; the stored classes are disjoint. */
function readUsage({ usage }: Assembly, wire: WireUsage): void {
  const prompt = readCount(wire.input_tokens);
  if (prompt !== null) {
    usage.cached = readCount(wire.input_tokens_details?.cached_tokens) ?? 0;
    usage.creation = readCount(wire.input_tokens_details?.cache_write_tokens) ?? 0;
    usage.input = Math.max(0, prompt - usage.cached - usage.creation);
  }
  usage.output = readCount(wire.output_tokens) ?? usage.output;
  usage.reasoning = readCount(wire.output_tokens_details?.reasoning_tokens) ?? usage.reasoning ?? 0;
}
