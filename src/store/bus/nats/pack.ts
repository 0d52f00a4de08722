// A publication as frames: one as a rule; what is large is left out where the others can read it, or goes in parts (16 §6.6).
import type { Published } from '#core/ports/live-bus.ts';
import type { Delta, OpenToolInput, Transient } from '#protocol/delta.ts';
import type { ContentBlock } from '#protocol/message.ts';
import { type FrameBody, MAX_FRAME_BYTES } from './frame.ts';

/** What a frame says beside its items; `n` is drawn for each frame. */
export type Head = Pick<FrameBody, 'epoch' | 'seq' | 'kind'> & { readonly next: () => number };

/** Without its seal and what surrounds its items. */
const ROOM = MAX_FRAME_BYTES - 1024;
/** Characters of one part; a character takes at most six bytes of JSON. */
const PART = 64 * 1024;

interface Piece {
  readonly text: string;
  readonly bytes: number;
  readonly event: boolean;
}

/** Texts of frames, each within `MAX_FRAME_BYTES` once it is sealed. */
export function packItems(items: readonly Published[], head: Head): string[] {
  const pieces = items.map(toPiece);
  if (sumSizes(pieces) <= ROOM) return [frame(head, pieces)];
  const small = items.flatMap((item, i) => (pieces[i]!.bytes <= PART ? [pieces[i]!] : smaller(item).map(toPiece)));
  return head.kind === 'commit' ? encodeCommit(small, head) : inTurn(small, head);
}

/** All events in one frame, with what stands between them; or none, and the commit is to be read from the store. */
function encodeCommit(pieces: readonly Piece[], head: Head): string[] {
  const from = pieces.findIndex(({ event }) => event);
  const to = pieces.findLastIndex(({ event }) => event) + 1;
  const commit = from < 0 ? [] : pieces.slice(from, to);
  const whole = sumSizes(commit) <= ROOM;
  return [
    ...inTurn(pieces.slice(0, Math.max(0, from)), { ...head, kind: 'between', seq: head.seq - 1 }),
    frame(head, whole ? commit : [], whole),
    ...inTurn(pieces.slice(to), { ...head, kind: 'between' }),
  ];
}

function inTurn(pieces: readonly Piece[], head: Head): string[] {
  const frames: string[] = [];
  let open: Piece[] = [];
  let size = 0;
  for (const piece of pieces) {
    if (size + piece.bytes + 1 > ROOM && open.length > 0) {
      frames.push(frame(head, open));
      open = [];
      size = 0;
    }
    open.push(piece);
    size += piece.bytes + 1;
  }
  if (open.length > 0) frames.push(frame(head, open));
  return frames;
}

function frame({ epoch, seq, kind, next }: Head, pieces: readonly Piece[], whole = true): string {
  const items = pieces.map(({ text }) => text).join(',');
  return `{"v":1,"epoch":${epoch},"seq":${seq},"n":${next()},"kind":"${kind}","whole":${whole},"items":[${items}]}`;
}

function sumSizes(pieces: readonly Piece[]): number {
  return pieces.reduce((sum, { bytes }) => sum + bytes + 1, 0);
}

type Sent = Published & { readonly from?: 'store' | 'parts' };

function toPiece(item: Sent): Piece {
  const text = encodeItem(item);
  return { text, bytes: Buffer.byteLength(text), event: item.kind === 'event' };
}

/** A payload goes as the text that was stored. */
function encodeItem(item: Sent): string {
  if (item.kind === 'event') {
    const { payload: _, ...envelope } = item.event;
    return `{"event":${JSON.stringify(envelope).slice(0, -1)},"payload":${item.payload_json}}}`;
  }
  const { transient, from } = item;
  return JSON.stringify({ transient, from });
}

/** The same in items that fit; an event is never cut. */
function smaller(item: Published): readonly Sent[] {
  if (item.kind === 'event') return [item];
  const { transient } = item;
  const { delta } = transient;
  const sent = (each: Delta): Sent => ({ kind: 'transient', transient: { ...transient, delta: each } });
  switch (delta.type) {
    case 'message.start':
      return inDeltas(transient).flatMap((each): readonly Sent[] => {
        const part: Published = { kind: 'transient', transient: each };
        return each.delta.type === 'message.start' ? [part] : smaller(part);
      });
    case 'text.delta':
      return parts(delta.payload.text).map((text) => sent({ ...delta, payload: { ...delta.payload, text } }));
    case 'thinking.delta': {
      const { text, signature } = delta.payload;
      return parts(text).map((part, i, all) =>
        sent({
          ...delta,
          payload: { ...delta.payload, text: part, signature: i === all.length - 1 ? signature : null },
        }),
      );
    }
    case 'tool.use_input_delta':
      return parts(delta.payload.partial_json).map((partial_json) =>
        sent({ ...delta, payload: { ...delta.payload, partial_json } }),
      );
    case 'tool.use_end':
      return [{ ...sent({ ...delta, payload: { ...delta.payload, final_input: {} } }), from: 'parts' }];
    case 'message.complete':
      return [{ ...sent({ ...delta, payload: { ...delta.payload, final_content: [] } }), from: 'store' }];
    case 'message.appended': {
      const message = { ...delta.payload.message, content: [] };
      return [{ ...sent({ ...delta, payload: { message } }), from: 'store' }];
    }
    default:
      return [item];
  }
}

/** A message so far as an empty one and what it said since. */
function inDeltas(start: Transient): readonly Transient[] {
  if (start.delta.type !== 'message.start') return [start];
  const { message_id, content, open_tool_inputs } = start.delta.payload;
  const empty: Delta = { ...start.delta, payload: { ...start.delta.payload, content: [], open_tool_inputs: [] } };
  const said = content.flatMap((block, index) => blockInDeltas(block, { message_id, content_block_index: index }));
  const open = open_tool_inputs.flatMap((input) => openInDeltas(input, message_id));
  return [empty, ...said, ...open].map((delta) => ({ ...start, delta }));
}

type At = { readonly message_id: string; readonly content_block_index: number };

function blockInDeltas(block: ContentBlock, at: At): readonly Delta[] {
  const { type } = block;
  if (type === 'text') return [{ type: 'text.delta', payload: { ...at, text: block.text } }];
  if (type === 'thinking') {
    return [{ type: 'thinking.delta', payload: { ...at, text: block.text, signature: block.signature } }];
  }
  if (type !== 'tool_use') return [];
  const input = { ...at, tool_use_id: block.id, tool_name: block.name, partial_json: JSON.stringify(block.input) };
  const end = { ...at, tool_use_id: block.id, final_input: block.input, input_error: null };
  return [...openInDeltas(input, at.message_id), { type: 'tool.use_end', payload: end }];
}

function openInDeltas({ tool_name, partial_json, ...input }: OpenToolInput, message_id: string): readonly Delta[] {
  const at = { message_id, content_block_index: input.content_block_index, tool_use_id: input.tool_use_id };
  return [
    { type: 'tool.use_start', payload: { ...at, tool_name } },
    { type: 'tool.use_input_delta', payload: { ...at, partial_json } },
  ];
}

function parts(text: string): string[] {
  const found: string[] = [];
  for (let at = 0; at < text.length; at += PART) found.push(text.slice(at, at + PART));
  return found.length === 0 ? [''] : found;
}
