// What the memory tools make of a file, and what they answer (10 §4.3).
import { describe, expect, it } from 'vitest';
import { editMemory, type MemoryEdit, memoryAnswer } from '#core/policy/context/memory-files.ts';

const content = (text: string) => ({ head: Buffer.from(text), size: Buffer.byteLength(text) });
function edited(before: string, edit: MemoryEdit, file: 'MEMORY.md' | 'USER.md' = 'MEMORY.md') {
  const result = editMemory(file, content(before), edit);
  return result.ok ? result.value.toString() : { error: result.error };
}
const add = (entry: string): MemoryEdit => ({ operation: 'add', entry });
const replace = (old: string, text: string): MemoryEdit => ({ operation: 'replace', old, new: text });
const consolidate = (text: string): MemoryEdit => ({ operation: 'consolidate', content: text });

describe('an entry', () => {
  it('stands trimmed on a line of its own, also behind a file without a final line end', () => {
    expect(edited('', add('  - a\n'))).toBe('- a\n');
    expect(edited('- a\n', add('- b'))).toBe('- a\n- b\n');
    expect(edited('- a', add('- b'))).toBe('- a\n- b\n');
  });

  it('must not be blank', () => {
    expect(edited('x', add(' \n '))).toEqual({ error: 'entry must be non-empty' });
  });
});

describe('a replacement', () => {
  it('takes both texts literally, and may remove', () => {
    expect(edited('a.c abc', replace('a.c', '$&'))).toBe('$& abc');
    expect(edited('keep\ndrop\n', replace('drop\n', ''))).toBe('keep\n');
  });

  it('needs a text that stands there exactly once', () => {
    expect(edited('x', replace('', 'y'))).toEqual({ error: 'replace source must be non-empty' });
    expect(edited('', replace('x', 'y'))).toEqual({ error: 'MEMORY.md is empty; nothing to replace' });
    expect(edited('abc', replace('x', 'y'))).toEqual({ error: 'replace source not found in MEMORY.md' });
    expect(edited('aaa', replace('aa', 'y'))).toEqual({
      error: 'replace source appears 2 times in MEMORY.md; must be unique',
    });
  });

  it('leaves bytes that are no UTF-8 as they are', () => {
    const before = Buffer.from([0xff, 0x41, 0xfe]);
    const result = editMemory('USER.md', { head: before, size: 3 }, replace('A', 'é'));
    expect(result).toEqual({ ok: true, value: Buffer.from([0xff, 0xc3, 0xa9, 0xfe]) });
  });
});

describe('the hard cap', () => {
  const rejection = (file: string, bytes: number, cap: number) => ({
    error: `${file} write rejected: ${bytes} bytes exceeds hard cap ${cap}; consolidate before adding more`,
  });

  it('holds in bytes for every tool, each file with its own', () => {
    expect(edited('', add('é'.repeat(2047)))).toHaveLength(2048);
    expect(edited('', add(`é${'x'.repeat(4094)}`))).toEqual(rejection('MEMORY.md', 4097, 4096));
    expect(edited('a', replace('a', 'x'.repeat(4097)))).toEqual(rejection('MEMORY.md', 4097, 4096));
    expect(edited('', consolidate('x'.repeat(3073)), 'USER.md')).toEqual(rejection('USER.md', 3073, 3072));
  });

  it('lets a file that is far above it be consolidated, and nothing else', () => {
    const far = { head: Buffer.from('some of it'), size: 2_000_000 };
    for (const edit of [add('b'), replace('some', '')])
      expect(editMemory('MEMORY.md', far, edit)).toMatchObject({
        ok: false,
        error: expect.stringContaining('hard cap'),
      });
    expect(editMemory('MEMORY.md', far, consolidate(''))).toEqual({ ok: true, value: Buffer.alloc(0) });
  });
});

it('an answer says the size, and above the soft cap what to do', () => {
  const sizes = (before: number, after: number) => ({
    before_hash: '',
    after_hash: '',
    before_size_bytes: before,
    after_size_bytes: after,
  });
  expect(memoryAnswer('MEMORY.md', 'add', sizes(0, 2048))).toEqual({
    text: 'appended to MEMORY.md (2048 bytes total)',
    over_soft_cap: false,
  });
  expect(memoryAnswer('USER.md', 'replace', sizes(0, 1537)).text).toBe(
    'replaced in USER.md (1537 bytes total) — over soft cap; consider memory_consolidate',
  );
  expect(memoryAnswer('MEMORY.md', 'consolidate', sizes(9, 3)).text).toBe('consolidated MEMORY.md: 9 → 3 bytes');
});
