// The bytes of a request's history, kept as they were sent: the next request adds what is new (11.5, 11.6).

/**
 * UTF-8 text. It stays what it is while a longer one is made of it, for which it lends its room: of one text, only one
 * longer text is used at a time. Joined strings in its place cost 2.3 ms at 4,000 messages: each is visited again.
 */
export interface GrowingText {
  readonly bytes: Buffer;
  readonly length: number;
}

export const NO_TEXT: GrowingText = { bytes: Buffer.alloc(0), length: 0 };
const LEAST_BYTES = 2048;

export function grown({ bytes, length }: GrowingText, added: string): GrowingText {
  const longer = length + Buffer.byteLength(added);
  let room = bytes;
  if (longer > bytes.length) {
    room = Buffer.allocUnsafeSlow(Math.max(LEAST_BYTES, longer * 2));
    bytes.copy(room, 0, 0, length);
  }
  room.write(added, length);
  return { bytes: room, length: longer };
}

/** All in one, between what stands before and behind. */
export function between(before: string, { bytes, length }: GrowingText, behind: string): Buffer {
  const start = Buffer.byteLength(before);
  const all = Buffer.allocUnsafe(start + length + Buffer.byteLength(behind));
  all.write(before);
  bytes.copy(all, start, 0, length);
  all.write(behind, start + length);
  return all;
}
