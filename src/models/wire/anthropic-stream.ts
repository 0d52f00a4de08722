// Decodes server-sent events of Anthropic Messages into an assembly (11.5).
import type { StopReason } from '#protocol/message.ts';
import { type Assembly, readCount, type Slot } from './assembly.ts';
import type { CodecLog, Decoder } from './codec.ts';
import { fault, readWireError, toStreamFault, WireFault } from './fault.ts';
import { argumentsText, readEventData, readName } from './provider-values.ts';

/** Fields of all events in one shape; every field may be missing. */
interface WireEvent {
  readonly type?: string;
  readonly index?: unknown;
  readonly message?: { readonly id?: unknown; readonly model?: unknown; readonly usage?: WireUsage | null } | null;
  readonly content_block?: WireBlock | null;
  readonly delta?: {
    readonly type?: string;
    readonly text?: unknown;
    readonly thinking?: unknown;
    readonly signature?: unknown;
    readonly partial_json?: unknown;
    readonly stop_reason?: unknown;
  } | null;
  readonly usage?: WireUsage | null;
}
interface WireBlock {
  readonly type?: string;
  readonly id?: unknown;
  readonly name?: unknown;
  readonly input?: unknown;
  readonly text?: unknown;
  readonly thinking?: unknown;
  readonly signature?: unknown;
  readonly data?: unknown;
}
interface WireUsage {
  readonly input_tokens?: unknown;
  readonly output_tokens?: unknown;
  readonly cache_read_input_tokens?: unknown;
  readonly cache_creation_input_tokens?: unknown;
  readonly cache_creation?: { readonly ephemeral_1h_input_tokens?: unknown } | null;
  readonly output_tokens_details?: { readonly thinking_tokens?: unknown } | null;
}

export const ANTHROPIC_STOP_REASONS: ReadonlyMap<string, StopReason> = new Map([
  ['end_turn', 'end_turn'],
  ['max_tokens', 'max_tokens'],
  ['stop_sequence', 'stop_sequence'],
  ['tool_use', 'tool_use'],
  ['model_context_window_exceeded', 'max_tokens'],
]);

export function createAnthropicDecoder(assembly: Assembly, remarks: CodecLog): Decoder {
  /** By the provider's index; null = a block type that canonical messages do not have. */
  const blocks = new Map<number, Slot | null>();
  const prefilled = new Map<Slot, string>();
  let stopReason: string | null = null;

  function open(index: number, block: WireBlock): void {
    const before = blocks.get(index);
    if (before) close(before);
    blocks.set(index, openSlot(block));
  }

  function openSlot(block: WireBlock): Slot | null {
    switch (block.type) {
      case 'text': {
        const slot = assembly.open('text');
        assembly.append(slot, toText(block.text));
        return slot;
      }
      case 'thinking': {
        const slot = assembly.open('thinking');
        assembly.append(slot, toText(block.thinking));
        assembly.sign(slot, toText(block.signature));
        return slot;
      }
      case 'redacted_thinking': {
        const slot = assembly.open('redacted');
        assembly.append(slot, toText(block.data));
        return slot;
      }
      case 'tool_use': {
        const slot = assembly.open('tool');
        assembly.name(slot, toText(block.name), toText(block.id) || null);
        // Some compatible servers send the whole input here and no deltas.
        if (typeof block.input === 'object' && block.input !== null && Object.keys(block.input).length > 0) {
          const text = argumentsText(slot, block.input);
          // Counted again when it becomes the block's text, which may happen at the end only.
          assembly.weigh(text.length);
          prefilled.set(slot, text);
        }
        return slot;
      }
      default:
        remarks.debug({ block_type: readName(block.type) }, 'content block of an unknown type ignored');
        return null;
    }
  }

  function close(slot: Slot): void {
    if (slot.text === '') assembly.append(slot, prefilled.get(slot) ?? '');
    assembly.close(slot);
  }

  function extend(slot: Slot, delta: NonNullable<WireEvent['delta']>): void {
    switch (delta.type) {
      case 'text_delta':
        if (slot.kind === 'text') assembly.append(slot, toText(delta.text));
        return;
      case 'input_json_delta':
        if (slot.kind === 'tool') assembly.append(slot, toText(delta.partial_json));
        return;
      case 'thinking_delta':
        if (slot.kind === 'thinking') assembly.append(slot, toText(delta.thinking));
        return;
      case 'signature_delta':
        if (slot.kind === 'thinking') assembly.sign(slot, toText(delta.signature));
        return;
    }
  }

  function complete(): void {
    for (const slot of blocks.values()) if (slot) close(slot);
    const mapped = (stopReason !== null && ANTHROPIC_STOP_REASONS.get(stopReason)) || 'end_turn';
    const reason = mapped === 'end_turn' && assembly.hasTools() ? 'tool_use' : mapped;
    assembly.stop = { reason, raw: stopReason };
  }

  return {
    event(data) {
      const event = readEventData(data) as WireEvent | null;
      switch (event?.type) {
        case 'content_block_delta': {
          const slot = blocks.get(blockIndex(event));
          if (slot && event.delta) extend(slot, event.delta);
          else if (slot === undefined)
            throw new WireFault(
              fault('network', 'malformed_event', 'a delta names a content block that was never opened'),
            );
          return;
        }
        case 'content_block_start':
          if (event.content_block) open(blockIndex(event), event.content_block);
          return;
        case 'content_block_stop': {
          const slot = blocks.get(blockIndex(event));
          if (slot) close(slot);
          return;
        }
        case 'message_start':
          assembly.servedModel = readName(event.message?.model) ?? assembly.servedModel;
          assembly.responseId = readName(event.message?.id) ?? assembly.responseId;
          if (event.message?.usage) {
            readUsage(assembly, event.message.usage);
            assembly.usage.early = true;
          }
          return;
        case 'message_delta':
          stopReason = readName(event.delta?.stop_reason) ?? stopReason;
          if (event.usage) {
            readUsage(assembly, event.usage);
            if (readCount(event.usage.output_tokens) !== null) assembly.usage.early = false;
          }
          return;
        case 'message_stop':
          complete();
          return;
        case 'error':
          throw toStreamFault(
            readWireError(event) ?? { type: null, code: null, status: null, message: 'the provider reported an error' },
          );
        case 'ping':
          return;
        default: {
          // A compatible server or a proxy may report an error without the event type.
          const error = readWireError(event);
          if (error !== null) throw toStreamFault(error);
          remarks.debug({ event_type: readName(event?.type) }, 'event of an unknown type ignored');
        }
      }
    },
    // Only message_stop completes a message.
    end() {},
  };
}

/** Counts are cumulative: new values replace old ones. */
function readUsage(assembly: Assembly, wire: WireUsage): void {
  const { usage } = assembly;
  usage.input = readCount(wire.input_tokens) ?? usage.input;
  usage.output = readCount(wire.output_tokens) ?? usage.output;
  usage.cached = readCount(wire.cache_read_input_tokens) ?? usage.cached;
  usage.creation = readCount(wire.cache_creation_input_tokens) ?? usage.creation;
  usage.creation1h = readCount(wire.cache_creation?.ephemeral_1h_input_tokens) ?? usage.creation1h;
  usage.reasoning = readCount(wire.output_tokens_details?.thinking_tokens) ?? usage.reasoning;
}

function blockIndex(event: WireEvent): number {
  if (typeof event.index === 'number') return event.index;
  return 0;
}

function toText(value: unknown): string {
  if (typeof value === 'string') return value;
  return '';
}
