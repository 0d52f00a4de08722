// Which images may enter a conversation: kinds, sizes, and bytes that are what they claim to be (10 §8).
import type { ImageBlock } from '#protocol/message.ts';

// Reads the pixel size of an image from its header alone: nothing is decoded (10 §8).

interface ImageSize {
  readonly width: number;
  readonly height: number;
}

/** Null where the header does not say, or is cut. */
function imageSize(bytes: Buffer, mediaType: string): ImageSize | null {
  try {
    if (mediaType === 'image/png') return { width: bytes.readUInt32BE(16), height: bytes.readUInt32BE(20) };
    if (mediaType === 'image/gif') return { width: bytes.readUInt16LE(6), height: bytes.readUInt16LE(8) };
    return mediaType === 'image/jpeg' ? jpegSize(bytes) : webpSize(bytes);
  } catch (error) {
    // Read beyond its end.
    if (error instanceof RangeError) return null;
    throw error;
  }
}

/** The first frame header among the segments. */
function jpegSize(bytes: Buffer): ImageSize | null {
  for (let at = 2; ; ) {
    if (bytes.readUInt8(at) !== 0xff) return null;
    const marker = bytes.readUInt8(at + 1);
    if (marker === 0xff) at += 1;
    else if (marker >= 0xc0 && marker <= 0xcf && ![0xc4, 0xc8, 0xcc].includes(marker))
      return { width: bytes.readUInt16BE(at + 7), height: bytes.readUInt16BE(at + 5) };
    else at += 2 + Math.max(2, bytes.readUInt16BE(at + 2));
  }
}

function webpSize(bytes: Buffer): ImageSize | null {
  switch (bytes.toString('latin1', 12, 16)) {
    case 'VP8 ':
      return { width: bytes.readUInt16LE(26) & 0x3fff, height: bytes.readUInt16LE(28) & 0x3fff };
    case 'VP8L': {
      const bits = bytes.readUInt32LE(21);
      return { width: (bits & 0x3fff) + 1, height: ((bits >>> 14) & 0x3fff) + 1 };
    }
    case 'VP8X':
      return { width: bytes.readUIntLE(24, 3) + 1, height: bytes.readUIntLE(27, 3) + 1 };
    default:
      return null;
  }
}

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
