// Checks images that enter a conversation: media type, size, and whether the bytes match the type (10 §8).
import type { ImageBlock } from '#protocol/message.ts';

// Reads the pixel size of an image from its header alone: nothing is decoded (10 §8).

interface ImageSize {
  readonly width: number;
  readonly height: number;
}

/** Null where the header has no size or is truncated. */
function imageSize(bytes: Buffer, mediaType: string): ImageSize | null {
  try {
    if (mediaType === 'image/png') return { width: bytes.readUInt32BE(16), height: bytes.readUInt32BE(20) };
    if (mediaType === 'image/gif') return { width: bytes.readUInt16LE(6), height: bytes.readUInt16LE(8) };
    if (mediaType === 'image/jpeg') return jpegSize(bytes);
    return webpSize(bytes);
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

/** Maximum images, and bytes of all images, in one message. */
export const MAX_IMAGES = 20;
const MAX_ALL_BYTES = 20 * 1024 * 1024;

/** Maximum pixels per side. A provider rejects a larger image, and with it every later request of the session. */
const MAX_SIDE = 8000;

const BASE64 = /^[A-Za-z0-9+/]*={0,2}$/;
/** Enough base64 for the longest signature (12 bytes). */
const SIGNATURE_CHARS = 16;

/** The media type by the first bytes; null when they are no supported image. */
export function imageType(bytes: Uint8Array): string | null {
  const head = Buffer.from(bytes.buffer, bytes.byteOffset, Math.min(bytes.length, 12)).toString('latin1');
  if (head.startsWith('\x89PNG\r\n\x1a\n')) return 'image/png';
  if (head.startsWith('\xff\xd8\xff')) return 'image/jpeg';
  if (head.startsWith('GIF87a') || head.startsWith('GIF89a')) return 'image/gif';
  if (head.startsWith('RIFF') && head.slice(8) === 'WEBP') return 'image/webp';
  return null;
}

/** Bytes that standard base64 text decodes to. */
export function countDecodedBytes(base64: string): number {
  return Math.floor((base64.length * 3) / 4) - countPadding(base64);
}

function countPadding(base64: string): number {
  if (base64.endsWith('==')) return 2;
  if (base64.endsWith('=')) return 1;
  return 0;
}

/** Null when the image is accepted, else its fault as a sentence. */
export function checkImage(base64: string, mediaType: string): string | null {
  if (base64 === '' || base64.length % 4 !== 0 || !BASE64.test(base64)) return 'data must be standard base64';
  const size = countDecodedBytes(base64);
  if (size > MAX_IMAGE_BYTES) return `the image has ${size} bytes, at most ${MAX_IMAGE_BYTES} are allowed`;
  const actual = imageType(Buffer.from(base64.slice(0, SIGNATURE_CHARS), 'base64'));
  if (actual === null) return 'data is not a PNG, JPEG, GIF or WebP image';
  if (actual !== mediaType) return `media_type is ${JSON.stringify(mediaType)} but the data is ${actual}`;
  return faultOfSize(Buffer.from(base64, 'base64'), actual);
}

/** Null when its sides are within the limit or unknown, else the fault. */
export function faultOfSize(bytes: Buffer, mediaType: string): string | null {
  const size = imageSize(bytes, mediaType);
  if (size === null || (size.width <= MAX_SIDE && size.height <= MAX_SIDE)) return null;
  return `the image has ${size.width} x ${size.height} pixels, at most ${MAX_SIDE} a side are allowed`;
}

/** Null when one message may hold all of them, else the fault. */
export function checkImages(images: readonly ImageBlock[]): string | null {
  if (images.length > MAX_IMAGES) return `holds more than ${MAX_IMAGES} images`;
  const bytes = images.reduce((sum, image) => sum + countDecodedBytes(image.source.data), 0);
  if (bytes > MAX_ALL_BYTES) return 'holds more than 20 MiB of images';
  return null;
}
