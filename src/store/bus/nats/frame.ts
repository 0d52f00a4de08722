// What a node tells the others of a tree, as bytes: who has no access to the database can neither make nor change it (16 §6.2).
import { createHash, timingSafeEqual } from 'node:crypto';
import { readJson } from '#core/policy/parsing/json.ts';
import type { Limits } from '#core/policy/parsing/limits.ts';
import { type FrameBody, FrameSchema } from './frame-schema.ts';

/** Of a frame as it travels. */
export const MAX_FRAME_BYTES = 512 * 1024;
const SEAL_BYTES = 16;
/** As deep as what a model wrote may be, and the frame around it. */
const LIMITS: Limits = { bytes: MAX_FRAME_BYTES, depth: 120, nodes: 250_000 };

export interface Seals {
  /** @param subject a frame says nothing on another one */
  seal(subject: string, text: string): Buffer;
  /** Null for what is too large, was made by a stranger, or is of no known form. Never throws. */
  open(subject: string, data: Uint8Array): FrameBody | null;
}

/** @param key known to the nodes of one cluster */
export function createSeals(key: Buffer): Seals {
  const hmac = hmacOf(key);
  const sealOf = (subject: string, body: Uint8Array) => hmac(`${subject}\n`, body).subarray(0, SEAL_BYTES);
  return {
    seal(subject, text) {
      const size = Buffer.byteLength(text);
      const bytes = Buffer.allocUnsafe(SEAL_BYTES + size);
      bytes.write(text, SEAL_BYTES, size, 'utf8');
      sealOf(subject, bytes.subarray(SEAL_BYTES)).copy(bytes);
      return bytes;
    },
    open(subject, data) {
      if (data.length <= SEAL_BYTES || data.length > MAX_FRAME_BYTES) return null;
      const bytes = Buffer.from(data.buffer, data.byteOffset, data.byteLength);
      const body = bytes.subarray(SEAL_BYTES);
      if (!timingSafeEqual(sealOf(subject, body), bytes.subarray(0, SEAL_BYTES))) return null;
      const json = readJson(body.toString('utf8'), LIMITS);
      if (!json.ok) return null;
      const frame = FrameSchema.safeParse(json.value);
      // As it came: a newer node may say more than this one knows.
      return frame.success ? (json.value as FrameBody) : null;
    },
  };
}

const BLOCK_BYTES = 64;

/**
 * HMAC-SHA-256 (RFC 2104) of both parts together. The key's share of the work is done once: `createHmac` takes four
 * times as long for a short text as this does.
 */
export function hmacOf(key: Buffer): (head: string, body: Uint8Array) => Buffer {
  const block = Buffer.alloc(BLOCK_BYTES);
  (key.length > BLOCK_BYTES ? createHash('sha256').update(key).digest() : key).copy(block);
  const inner = createHash('sha256').update(block.map((byte) => byte ^ 0x36));
  const outer = createHash('sha256').update(block.map((byte) => byte ^ 0x5c));
  return (head, body) => outer.copy().update(inner.copy().update(head).update(body).digest()).digest();
}
