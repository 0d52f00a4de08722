// Decodes server-sent events of Anthropic Messages into an assembly (11.5).
import { isMapping } from '#core/policy/parsing/yaml.ts';
import type { StopReason } from '#protocol/message.ts';
import type { ReportedRound } from '#protocol/usage.ts';
import { type Assembly, BLOCK_WEIGHT, readCount, type Slot, type UsageReport } from './assembly.ts';
import { readMessagesBill, readMessagesBlock, sumCounts } from './billed-parts.ts';
import type { CodecLog, Decoder } from './codec.ts';
import { createRefusal, createUnknownStop, fault, readWireError, toStreamFault, WireFault } from './fault.ts';
import { argumentsText, readEventData, readName } from './provider-values.ts';

/** Fields of all events in one shape; every field may be missing. */
interface WireEvent {
  readonly type?: string;
  readonly index?: unknown;
  readonly message?: { readonly id?: unknown; readonly model?: unknown; readonly usage?: unknown } | null;
  readonly content_block?: WireBlock | null;
  readonly delta?: {
    readonly type?: string;
    readonly text?: unknown;
    readonly thinking?: unknown;
    readonly signature?: unknown;
    readonly partial_json?: unknown;
    readonly stop_reason?: unknown;
  } | null;
  readonly usage?: unknown;
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
export const ANTHROPIC_STOP_REASONS: ReadonlyMap<string, StopReason> = new Map([
  ['end_turn', 'end_turn'],
  ['max_tokens', 'max_tokens'],
  ['stop_sequence', 'stop_sequence'],
  ['tool_use', 'tool_use'],
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
        assembly.weigh(BLOCK_WEIGHT);
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
    assembly.stop = { reason: mapStopReason(stopReason, assembly.hasTools()), raw: stopReason };
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
          readMessagesBlock(event.content_block, assembly.bill);
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
          readMessagesUsage(event.message?.usage, assembly, true);
          return;
        case 'message_delta':
          stopReason = readName(event.delta?.stop_reason) ?? stopReason;
          readMessagesUsage(event.usage, assembly, false);
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

/** Throws `WireFault` for an answer that is no success (22 §4). A paused answer is continued: it waits for a tool of the provider. */
function mapStopReason(raw: string | null, hasTools: boolean): StopReason {
  if (raw === 'refusal') throw createRefusal(raw);
  if (raw === 'model_context_window_exceeded')
    throw new WireFault(
      fault('invalid_request', raw, 'the answer did not fit into what was left of the context window'),
    );
  if (raw === 'pause_turn') return 'tool_use';
  const reason = raw === null ? 'end_turn' : ANTHROPIC_STOP_REASONS.get(raw);
  if (reason === undefined) throw createUnknownStop(raw!);
  if (reason === 'end_turn' || reason === 'tool_use') return hasTools ? 'tool_use' : 'end_turn';
  return reason;
}

const COUNTED = ['input', 'output', 'cached', 'creation', 'creation1h', 'reasoning'] as const;

/** Counts are cumulative: new values replace old ones. Several rounds of one call are added up. */
export function readMessagesUsage(
  wire: unknown,
  { usage, bill }: Pick<Assembly, 'usage' | 'bill'>,
  early: boolean,
): void {
  if (!isMapping(wire)) return;
  if (arePassed(bill.rounds, wire)) bill.rounds = [];
  readMessagesBill(wire, bill, early, readCounts);
  const billed = bill.rounds.filter((round) => round.billed).map((round) => round.usage);
  const counts = billed.length === 0 ? readCounts(wire) : sumCounts(billed);
  for (const key of COUNTED) usage[key] = counts[key] ?? usage[key];
  if (early) usage.early = true;
  else if (readCount(wire.output_tokens) !== null) usage.early = false;
}

/** Whether rounds that were reported before are older than these counts, which report more output and no rounds. */
function arePassed(rounds: readonly ReportedRound[], wire: Readonly<Record<string, unknown>>): boolean {
  if (rounds.length === 0 || Array.isArray(wire.iterations)) return false;
  const { output } = sumCounts(rounds.map((round) => round.usage));
  return (readCount(wire.output_tokens) ?? 0) > (output ?? 0);
}

function readCounts(one: Readonly<Record<string, unknown>>): Readonly<Omit<UsageReport, 'early'>> {
  return {
    input: readCount(one.input_tokens),
    output: readCount(one.output_tokens),
    cached: readCount(one.cache_read_input_tokens),
    creation: readCount(one.cache_creation_input_tokens),
    creation1h: readCount(readMember(one.cache_creation, 'ephemeral_1h_input_tokens')),
    reasoning: readCount(readMember(one.output_tokens_details, 'thinking_tokens')),
  };
}

function readMember(value: unknown, key: string): unknown {
  if (isMapping(value)) return value[key];
  return undefined;
}

function blockIndex(event: WireEvent): number {
  if (typeof event.index === 'number') return event.index;
  return 0;
}

function toText(value: unknown): string {
  if (typeof value === 'string') return value;
  return '';
}
