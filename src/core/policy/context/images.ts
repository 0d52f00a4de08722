// Which images may enter a conversation: kinds, sizes, and bytes that are what they claim to be (10 §8).
import type { ImageBlock } from '#protocol/message.ts';
import { imageSize } from './image-size.ts';

/** Decoded bytes of one image. */
export const MAX_IMAGE_BYTES = 5 * 1024 * 1024;

/** Of one message. */
export const MAX_IMAGES = 20;
const MAX_ALL_BYTES = 20 * 1024 * 1024;

/** Pixels a side: with more a provider refuses the request, and with it every later one of the session. */
const MAX_SIDE = 8000;

const BASE64 = /^[A-Za-z0-9+/]*={0,2}$/;
/** Enough base64 for the longest signature (12 bytes). */
const SIGNATURE_CHARS = 16;

/** The media type that the first bytes speak of; null when they are no supported image. */
export function imageType(bytes: Uint8Array): string | null {
  const head = Buffer.from(bytes.buffer, bytes.byteOffset, Math.min(bytes.length, 12)).toString('latin1');
  if (head.startsWith('\x89PNG\r\n\x1a\n')) return 'image/png';
  if (head.startsWith('\xff\xd8\xff')) return 'image/jpeg';
  if (head.startsWith('GIF87a') || head.startsWith('GIF89a')) return 'image/gif';
  if (head.startsWith('RIFF') && head.slice(8) === 'WEBP') return 'image/webp';
  return null;
}

/** Bytes that standard base64 text decodes to. */
export function decodedBytes(base64: string): number {
  const padding = base64.endsWith('==') ? 2 : base64.endsWith('=') ? 1 : 0;
  return Math.floor((base64.length * 3) / 4) - padding;
}

/** Null when the image may be taken in, else what is wrong with it, for a person to read. */
export function checkImage(base64: string, mediaType: string): string | null {
  if (base64 === '' || base64.length % 4 !== 0 || !BASE64.test(base64)) return 'data must be standard base64';
  const size = decodedBytes(base64);
  if (size > MAX_IMAGE_BYTES) return `the image has ${size} bytes, at most ${MAX_IMAGE_BYTES} are allowed`;
  const actual = imageType(Buffer.from(base64.slice(0, SIGNATURE_CHARS), 'base64'));
  if (actual === null) return 'data is not a PNG, JPEG, GIF or WebP image';
  if (actual !== mediaType) return `media_type is ${JSON.stringify(mediaType)} but the data is ${actual}`;
  return faultOfSize(Buffer.from(base64, 'base64'), actual);
}

/** Null when its sides are not too long, as far as they are known; else what is wrong. */
export function faultOfSize(bytes: Buffer, mediaType: string): string | null {
  const size = imageSize(bytes, mediaType);
  if (size === null || (size.width <= MAX_SIDE && size.height <= MAX_SIDE)) return null;
  return `the image has ${size.width} x ${size.height} pixels, at most ${MAX_SIDE} a side are allowed`;
}

/** Null when one message may hold them all, else why not. */
export function checkImages(images: readonly ImageBlock[]): string | null {
  if (images.length > MAX_IMAGES) return `holds more than ${MAX_IMAGES} images`;
  const bytes = images.reduce((sum, image) => sum + decodedBytes(image.source.data), 0);
  return bytes > MAX_ALL_BYTES ? 'holds more than 20 MiB of images' : null;
}
