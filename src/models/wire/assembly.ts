// Turns the pieces of a provider into canonical stream events: block order, tool arguments, deferred fragments (11.3).
import type { IdGenerator, MessageId, ToolUseId } from '#protocol/ids.ts';
import type { ProviderRaw, StopReason } from '#protocol/message.ts';
import type { StreamEvent } from '#protocol/model-call.ts';
import { type BillNotes, emptyNotes } from './billed-parts.ts';
import { fault, WireFault } from './fault.ts';
import { type ParsedArguments, parseArguments, readName } from './provider-values.ts';

// Token counts as the provider reported them (11.5, 11.6).

/** Null = not reported. */
export interface UsageReport {
  input: number | null;
  cached: number | null;
  creation: number | null;
  creation1h: number | null;
  output: number | null;
  reasoning: number | null;
  /** The output count is preliminary: the provider reported it before the end. */
  early: boolean;
}

export function emptyUsage(): UsageReport {
  return { input: null, cached: null, creation: null, creation1h: null, output: null, reasoning: null, early: false };
}

/** A reported count: null = not reported, `NaN` = reported, and no whole number from 0. */
export function readCount(value: unknown): number | null {
  if (value == null) return null;
  if (typeof value === 'number' && Number.isSafeInteger(value) && value >= 0) return value;
  return Number.NaN;
}

/** Maximum characters of one answer. */
const MAX_CHARACTERS = 64 * 1024 * 1024;
/** Weight of a block in addition to its text, so that an endless stream of empty blocks reaches the limit. */
export const BLOCK_WEIGHT = 256;
/** Blocks of one message, and calls among them: each is stored, sent and answered by itself. */
const MAX_BLOCKS = 5000;
const MAX_CALLS = 500;
/** Maximum characters kept of a tool's name. */
const MAX_NAME = 256;

/** A block of opaque bytes that has a position in the message but no event. */
interface Redacted {
  readonly type: 'redacted';
  readonly data: string;
}
export type AssembledEvent = StreamEvent | Redacted;

/** One growing block. Only the earliest open block is live; fragments of later blocks wait until it closes. */
export interface Slot {
  readonly kind: 'text' | 'thinking' | 'tool' | 'redacted';
  /** Text, thinking, redacted data, or the arguments of a call. */
  text: string;
  signature: string;
  name: string;
  providerId: string | null;
  id: ToolUseId | null;
  /** Place in the message, -1 until its first event. */
  index: number;
  /** Why arguments that arrived as a value are rejected; null = accepted so far. */
  refused: string | null;
  /** Fragments received while another block was live. */
  waiting: string[];
  closed: boolean;
}

export interface Assembly {
  readonly id: MessageId;
  /** Events ready to be yielded; the reader empties it. */
  readonly queue: AssembledEvent[];
  readonly usage: UsageReport;
  readonly bill: BillNotes;
  readonly slots: readonly Slot[];
  servedModel: string | null;
  responseId: string | null;
  /** Raw data that the wire requires with the message in later requests; null = none. */
  providerRaw: ProviderRaw | null;
  /** Set when the provider has reported the end of the message. */
  stop: { readonly reason: StopReason; readonly raw: string | null } | null;
  open(kind: Slot['kind']): Slot;
  /** Names a call; the first non-empty name stays. */
  name(slot: Slot, name: string, providerId: string | null): void;
  /** Text, arguments or redacted data; nothing is added to a closed block. */
  append(slot: Slot, fragment: string): void;
  sign(slot: Slot, fragment: string): void;
  /** Counts characters that are kept outside of blocks. */
  weigh(amount: number): void;
  close(slot: Slot): void;
  /** Closes every block that is still open, cut off: arguments that do not parse are marked `incomplete`. */
  breakOff(): void;
  /** Whether a call with a name was received. */
  hasTools(): boolean;
}

export function createAssembly(model: string, ids: IdGenerator): Assembly {
  const id = ids.message();
  const queue: AssembledEvent[] = [];
  const slots: Slot[] = [];
  let live = 0;
  let places = 0;
  let size = 0;
  let calls = 0;
  let started = false;
  let cut = false;

  function emit(event: StreamEvent): void {
    if (!started) {
      started = true;
      queue.push({ type: 'message.start', message_id: id, model });
    }
    queue.push(event);
  }

  /** Emits a fragment of the live slot. */
  function deliverFragment(slot: Slot, fragment: string): void {
    if (slot.index < 0) slot.index = places++;
    if (slot.kind === 'text')
      emit({ type: 'text.delta', message_id: id, content_block_index: slot.index, text: fragment });
    else if (slot.kind === 'thinking')
      emit({
        type: 'thinking.delta',
        message_id: id,
        content_block_index: slot.index,
        text: fragment,
        signature: null,
      });
    else
      emit({
        type: 'tool.use_input_delta',
        message_id: id,
        content_block_index: slot.index,
        tool_use_id: slot.id!,
        partial_json: fragment,
      });
  }

  /** A call begins when its name is known. */
  function start(slot: Slot): void {
    if (slot.kind !== 'tool' || slot.id !== null || slot.name === '') return;
    slot.id = ids.toolUse();
    slot.index = places++;
    emit({
      type: 'tool.use_start',
      message_id: id,
      content_block_index: slot.index,
      tool_use_id: slot.id,
      tool_name: slot.name,
      provider_tool_id: slot.providerId,
    });
  }

  function releaseSlot(slot: Slot): void {
    start(slot);
    if (slot.kind === 'redacted' || (slot.kind === 'tool' && slot.id === null)) return;
    for (const fragment of slot.waiting) deliverFragment(slot, fragment);
    slot.waiting.length = 0;
  }

  function readArguments(slot: Slot): ParsedArguments {
    if (slot.refused !== null) return { input: {}, error: `invalid_json: ${slot.refused}` };
    return parseArguments(slot.text, cut);
  }

  function finish(slot: Slot): void {
    if (slot.kind === 'redacted') {
      places++;
      queue.push({ type: 'redacted', data: slot.text });
    } else if (slot.kind === 'thinking' && slot.signature !== '' && !cut) {
      if (slot.index < 0) slot.index = places++;
      const { index, signature } = slot;
      emit({ type: 'thinking.delta', message_id: id, content_block_index: index, text: '', signature });
    } else if (slot.kind === 'tool' && slot.id !== null) {
      const { input, error } = readArguments(slot);
      emit({
        type: 'tool.use_end',
        message_id: id,
        content_block_index: slot.index,
        tool_use_id: slot.id,
        final_input: input,
        input_error: error,
      });
    }
  }

  /** Finishes closed blocks from the front and makes the next open block live. */
  function advance(): void {
    for (let slot = slots[live]; slot !== undefined; slot = slots[++live]) {
      releaseSlot(slot);
      if (!slot.closed) return;
      finish(slot);
    }
  }

  function weigh(amount: number): void {
    size += amount;
    if (size > MAX_CHARACTERS)
      throw new WireFault(fault('other', 'response_too_large', `the answer exceeds ${MAX_CHARACTERS} characters`));
  }

  function admit(kind: Slot['kind']): void {
    weigh(BLOCK_WEIGHT);
    if (kind === 'tool') calls++;
    const limit = (what: string) =>
      new WireFault(fault('other', 'response_too_large', `the answer has more than ${what}`));
    if (calls > MAX_CALLS) throw limit(`${MAX_CALLS} tool calls`);
    if (slots.length >= MAX_BLOCKS) throw limit(`${MAX_BLOCKS} blocks`);
  }

  return {
    id,
    queue,
    usage: emptyUsage(),
    bill: emptyNotes(),
    slots,
    servedModel: null,
    responseId: null,
    providerRaw: null,
    stop: null,
    weigh,
    open(kind) {
      admit(kind);
      const slot: Slot = {
        kind,
        text: '',
        signature: '',
        name: '',
        providerId: null,
        id: null,
        index: -1,
        refused: null,
        waiting: [],
        closed: false,
      };
      slots.push(slot);
      return slot;
    },
    name(slot, name, providerId) {
      weigh(name.length + (providerId?.length ?? 0));
      slot.providerId ??= readName(providerId);
      if (slot.name !== '' || name === '') return;
      slot.name = name.slice(0, MAX_NAME);
      if (slots[live] === slot) releaseSlot(slot);
    },
    append(slot, fragment) {
      if (fragment === '' || slot.closed) return;
      weigh(fragment.length);
      slot.text += fragment;
      if (slot.kind === 'redacted') return;
      if (slots[live] === slot && (slot.kind !== 'tool' || slot.id !== null)) deliverFragment(slot, fragment);
      else slot.waiting.push(fragment);
    },
    sign(slot, fragment) {
      if (slot.closed) return;
      weigh(fragment.length);
      slot.signature += fragment;
    },
    close(slot) {
      if (slot.closed) return;
      slot.closed = true;
      if (slots[live] === slot) advance();
    },
    breakOff() {
      cut = true;
      for (const slot of slots) slot.closed = true;
      advance();
    },
    hasTools: () => slots.some((slot) => slot.kind === 'tool' && slot.name !== ''),
  };
}
