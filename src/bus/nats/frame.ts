// What a node tells the others of a tree, as bytes: who has no access to the database can neither make nor change it (16 §6.2).
import { createHmac, timingSafeEqual } from 'node:crypto';
import { readJson } from '../../policy/parsing/json.ts';
import type { Limits } from '../../policy/parsing/limits.ts';
import { type FrameBody, FrameSchema } from './frame-schema.ts';

/** Of a frame as it travels. */
export const MAX_FRAME_BYTES = 512 * 1024;
const SEAL_BYTES = 16;
/** As deep as what a model wrote may be, and the frame around it. */
const LIMITS: Limits = { bytes: MAX_FRAME_BYTES, depth: 120, nodes: 250_000 };

/**
 * @param key known to the nodes of one cluster
 * @param subject a frame says nothing on another one
 */
export function sealed(key: Buffer, subject: string, text: string): Buffer {
  const size = Buffer.byteLength(text);
  const bytes = Buffer.allocUnsafe(SEAL_BYTES + size);
  bytes.write(text, SEAL_BYTES, size, 'utf8');
  sealOf(key, subject, bytes.subarray(SEAL_BYTES)).copy(bytes);
  return bytes;
}

/** Null for what is too large, was made by a stranger, or is of no known form. Never throws. */
export function opened(key: Buffer, subject: string, data: Uint8Array): FrameBody | null {
  if (data.length <= SEAL_BYTES || data.length > MAX_FRAME_BYTES) return null;
  const bytes = Buffer.from(data.buffer, data.byteOffset, data.byteLength);
  const body = bytes.subarray(SEAL_BYTES);
  if (!timingSafeEqual(sealOf(key, subject, body), bytes.subarray(0, SEAL_BYTES))) return null;
  const json = readJson(body.toString('utf8'), LIMITS);
  if (!json.ok) return null;
  const frame = FrameSchema.safeParse(json.value);
  // As it came: a newer node may say more than this one knows.
  return frame.success ? (json.value as FrameBody) : null;
}

function sealOf(key: Buffer, subject: string, body: Buffer): Buffer {
  return createHmac('sha256', key).update(subject).update('\n').update(body).digest().subarray(0, SEAL_BYTES);
}
