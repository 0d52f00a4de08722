// Image intake: kinds, sizes and signatures (10 §8).
import { describe, expect, it } from 'vitest';
import { checkImage, decodedBytes, imageType, MAX_IMAGE_BYTES } from '../../src/policy/context/images.ts';

const PNG = Buffer.concat([Buffer.from('89504e470d0a1a0a', 'hex'), Buffer.alloc(8)]);
const JPEG = Buffer.concat([Buffer.from('ffd8ffe0', 'hex'), Buffer.alloc(8)]);
const GIF = Buffer.from('GIF89a........');
const WEBP = Buffer.from('RIFF\x00\x00\x00\x00WEBPVP8 ');

describe('an image block', () => {
  it.each([
    ['image/png', PNG],
    ['image/jpeg', JPEG],
    ['image/gif', GIF],
    ['image/gif', Buffer.from('GIF87a........')],
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

  it('may have 5 MiB decoded and no byte more', () => {
    const sized = (bytes: number) => Buffer.concat([PNG, Buffer.alloc(bytes - PNG.length)]).toString('base64');
    expect(checkImage(sized(MAX_IMAGE_BYTES), 'image/png')).toBeNull();
    expect(checkImage(sized(MAX_IMAGE_BYTES + 1), 'image/png')).toBe(
      'the image has 5242881 bytes, at most 5242880 are allowed',
    );
  });

  it.each([0, 1, 2, 3, 4, 5, 6])('of %i bytes knows its decoded size from its text', (size) => {
    expect(decodedBytes(Buffer.alloc(size).toString('base64'))).toBe(size);
  });
});
