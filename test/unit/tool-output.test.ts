// The limits of a tool's answer (09 §10).
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { createCutOutput, cutUtf8, MAX_OUTPUT_BYTES, truncateOutput } from '#core/policy/tools/tool-output.ts';
import type { ToolResultContent } from '#protocol/message.ts';
import { toolText } from '#protocol/tool.ts';

const text = (t: string): ToolResultContent => ({ type: 'text', text: t });
const image = (bytes: number): ToolResultContent => ({
  type: 'image',
  source: { kind: 'base64', data: Buffer.alloc(bytes).toString('base64') },
  media_type: 'image/png',
});
const output = (content: ToolResultContent[]) => ({ ...toolText(''), content });

describe('a tool output', () => {
  it('of exactly 256 KiB stays whole', () => {
    const whole = toolText('x'.repeat(MAX_OUTPUT_BYTES));
    expect(truncateOutput(whole)).toEqual(whole);
  });

  it('is cut to 256 KiB with the number of omitted bytes', () => {
    const cut = truncateOutput(toolText('x'.repeat(MAX_OUTPUT_BYTES + 7)));
    expect(cut.content).toEqual([text(`${'x'.repeat(MAX_OUTPUT_BYTES)}\n... [output truncated: 7 bytes omitted]`)]);
  });

  it('is cut between characters', () => {
    const cut = truncateOutput(toolText(`x${'é'.repeat(MAX_OUTPUT_BYTES / 2)}`));
    expect(cut.content).toEqual([
      text(`x${'é'.repeat(MAX_OUTPUT_BYTES / 2 - 1)}\n... [output truncated: 2 bytes omitted]`),
    ]);
  });

  it('counts all its text blocks together and keeps images behind the cut', () => {
    const half = 'a'.repeat(MAX_OUTPUT_BYTES / 2);
    const cut = truncateOutput(output([text(half), text(`${half}bb`), image(3), text('ccc')]));
    expect(cut.content).toEqual([text(half), text(`${half}\n... [output truncated: 5 bytes omitted]`), image(3)]);
  });

  it('keeps five images of at most 5 MiB and names the others', () => {
    const small = image(3);
    const kept = truncateOutput(output([image(5 * 1024 * 1024 + 1), small, small, small, small, small, small]));
    expect(kept.content).toEqual([
      text('[image omitted: 5242881 bytes, at most 5242880 are shown]'),
      small,
      small,
      small,
      small,
      small,
      text('[image omitted: at most 5 are shown]'),
    ]);
  });

  it('that its tool has cut is left as it is', () => {
    const cut = createCutOutput('x'.repeat(MAX_OUTPUT_BYTES + 100));
    expect(truncateOutput(cut)).toEqual(cut);
  });
});

describe('a cut of UTF-8 text', () => {
  it('is a start of the text within the bytes, and one character short of no more than they allow', () => {
    fc.assert(
      fc.property(fc.string({ unit: 'binary' }), fc.nat(40), (whole, bytes) => {
        const head = cutUtf8(whole, bytes);
        expect(whole.startsWith(head)).toBe(true);
        expect(Buffer.byteLength(head)).toBeLessThanOrEqual(bytes);
        if (head !== whole) expect(Buffer.byteLength(head)).toBeGreaterThan(bytes - 4);
      }),
    );
  });
});
