// Image intake: kinds, sizes and signatures (10 §8).
import { describe, expect, it } from 'vitest';
import { checkImage, countDecodedBytes, imageType, MAX_IMAGE_BYTES } from '#core/policy/context/image-blocks.ts';

const PNG = Buffer.concat([Buffer.from('89504e470d0a1a0a', 'hex'), Buffer.alloc(8)]);
const JPEG = Buffer.concat([Buffer.from('ffd8ffe0', 'hex'), Buffer.alloc(8)]);
const GIF = Buffer.from('GIF89a\0\0\0\0....');
const WEBP = Buffer.from('RIFF\x00\x00\x00\x00WEBPVP8 ');

describe('an image block', () => {
  it.each([
    ['image/png', PNG],
    ['image/jpeg', JPEG],
    ['image/gif', GIF],
    ['image/gif', Buffer.from('GIF87a\0\0\0\0....')],
    ['image/webp', WEBP],
  ])('of %s passes under its own name only', (type, bytes) => {
    expect(imageType(bytes)).toBe(type);
    expect(checkImage(bytes.toString('base64'), type)).toBeNull();
    const other = type === 'image/png' ? 'image/jpeg' : 'image/png';
    expect(checkImage(bytes.toString('base64'), other)).toBe(`media_type is "${other}" but the data is ${type}`);
  });

  it('is refused when it is no image, no base64 or empty', () => {
    expect(checkImage(Buffer.from('just text').toString('base64'), 'image/png')).toMatch(/^data is not a PNG/);
    expect(checkImage('####', 'image/png')).toBe('data must be standard base64');
    expect(checkImage('', 'image/png')).toBe('data must be standard base64');
    expect(checkImage(`${PNG.toString('base64')}=`, 'image/png')).toBe('data must be standard base64');
    expect(imageType(new Uint8Array(0))).toBeNull();
  });

  // Promise 10.16: An image whose bytes are of another kind, or above 5 MiB, is refused.
  it('may have 5 MiB decoded and no byte more', () => {
    const sized = (bytes: number) => Buffer.concat([PNG, Buffer.alloc(bytes - PNG.length)]).toString('base64');
    expect(checkImage(sized(MAX_IMAGE_BYTES), 'image/png')).toBeNull();
    expect(checkImage(sized(MAX_IMAGE_BYTES + 1), 'image/png')).toBe(
      'the image has 5242881 bytes, at most 5242880 are allowed',
    );
  });

  const pngOf = (width: number, height: number) => {
    const bytes = Buffer.concat([PNG.subarray(0, 8), Buffer.from('0000000d49484452', 'hex'), Buffer.alloc(9)]);
    bytes.writeUInt32BE(width, 16);
    bytes.writeUInt32BE(height, 20);
    return bytes;
  };
  const jpegOf = (width: number, height: number) => {
    // A segment with a thumbnail of its own size comes first.
    const before = Buffer.from('ffd8ffe10008ffc000110800', 'hex');
    const frame = Buffer.from('ffffc2001108000000000300', 'hex');
    frame.writeUInt16BE(height, 6);
    frame.writeUInt16BE(width, 8);
    return Buffer.concat([before, frame]);
  };
  const gifOf = (width: number, height: number) => {
    const bytes = Buffer.from(GIF);
    bytes.writeUInt16LE(width, 6);
    bytes.writeUInt16LE(height, 8);
    return bytes;
  };
  const webpOf = (kind: 'VP8 ' | 'VP8L' | 'VP8X', width: number, height: number) => {
    const bytes = Buffer.concat([WEBP.subarray(0, 12), Buffer.from(kind), Buffer.alloc(16)]);
    if (kind === 'VP8 ') bytes.writeUInt16LE(width, 26) && bytes.writeUInt16LE(height, 28);
    if (kind === 'VP8L') bytes.writeUInt32LE(((width - 1) | ((height - 1) << 14)) >>> 0, 21);
    if (kind === 'VP8X') bytes.writeUIntLE(width - 1, 24, 3) && bytes.writeUIntLE(height - 1, 27, 3);
    return bytes;
  };

  it.each([
    ['image/png', pngOf],
    ['image/jpeg', jpegOf],
    ['image/gif', gifOf],
    ['image/webp', (w: number, h: number) => webpOf('VP8 ', w, h)],
    ['image/webp', (w: number, h: number) => webpOf('VP8L', w, h)],
    ['image/webp', (w: number, h: number) => webpOf('VP8X', w, h)],
  ] as const)('of %s may have 8,000 pixels a side, and is not decoded to count them', (type, made) => {
    const check = (width: number, height: number) => checkImage(made(width, height).toString('base64'), type);
    expect(check(8000, 8000)).toBeNull();
    expect(check(8001, 2)).toBe('the image has 8001 x 2 pixels, at most 8000 a side are allowed');
    expect(check(2, 9000)).toBe('the image has 2 x 9000 pixels, at most 8000 a side are allowed');
  });

  it('with a header that is cut or garbled is looked at in bounded time', () => {
    for (const head of [JPEG.subarray(0, 4), Buffer.from('ffd8ff', 'hex'), Buffer.from('ffd8ffe0ffff', 'hex')])
      expect(checkImage(head.toString('base64'), 'image/jpeg')).toBeNull();
    const endless = Buffer.alloc(3_000_000, 0xff);
    endless[1] = 0xd8;
    expect(checkImage(endless.toString('base64'), 'image/jpeg')).toBeNull();
  });

  it.each([0, 1, 2, 3, 4, 5, 6])('of %i bytes knows its decoded size from its text', (size) => {
    expect(countDecodedBytes(Buffer.alloc(size).toString('base64'))).toBe(size);
  });
});
