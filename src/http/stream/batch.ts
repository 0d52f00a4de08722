// Several frames as the bytes of one write: made once for all sockets that are sent the same (06 §9).
import type { Frame } from './frames.ts';

/** First byte of a whole text message (RFC 6455 §5.2). */
const WHOLE_TEXT = 0x81;
/** A batch above it is not kept: many clients rarely replay the same pages at the same time. */
const MAX_KEPT_BYTES = 1024 * 1024;

/**
 * Text frames as a server sends them: unmasked, uncompressed, one after the other. The last batch is kept, since all
 * subscribers of a session are sent the same one.
 */
export function createBatchEncoder(): (frames: readonly Frame[]) => Buffer {
  let kept: { readonly frames: readonly Frame[]; readonly bytes: Buffer } | null = null;
  return (frames) => {
    if (kept !== null && same(kept.frames, frames)) return kept.bytes;
    const bytes = encode(frames);
    kept = bytes.length > MAX_KEPT_BYTES ? null : { frames, bytes };
    return bytes;
  };
}

function same(a: readonly Frame[], b: readonly Frame[]): boolean {
  return a.length === b.length && a.every((frame, i) => frame === b[i]);
}

function encode(frames: readonly Frame[]): Buffer {
  const sizes = frames.map(({ text }) => Buffer.byteLength(text));
  const bytes = Buffer.allocUnsafe(sizes.reduce((sum, size) => sum + headSize(size) + size, 0));
  let at = 0;
  for (const [i, size] of sizes.entries()) {
    at = writeHead(bytes, at, size);
    at += bytes.write(frames[i]!.text, at, size, 'utf8');
  }
  return bytes;
}

function headSize(size: number): number {
  return size < 126 ? 2 : size < 65_536 ? 4 : 10;
}

/** Returns where the payload begins. */
function writeHead(bytes: Buffer, at: number, size: number): number {
  bytes[at] = WHOLE_TEXT;
  if (size < 126) {
    bytes[at + 1] = size;
    return at + 2;
  }
  if (size < 65_536) {
    bytes[at + 1] = 126;
    return bytes.writeUInt16BE(size, at + 2);
  }
  bytes[at + 1] = 127;
  return bytes.writeBigUInt64BE(BigInt(size), at + 2);
}
