// The memory tools on real files: who writes when, what is told of it, and what they leave alone (10 §4).
import fs from 'node:fs';
import path from 'node:path';
import { describe, expect, it } from 'vitest';
import type { MemoryWrite } from '#protocol/event/session-events.ts';
import { sha256Hex } from '#protocol/text/canonical-json.ts';
import { memoryAdd, memoryConsolidate, memoryReplace } from '#tools/builtin/memory-and-skills.ts';
import { call, failure, run, textOf, workspace } from './call.ts';

type Told = MemoryWrite & { readonly file: string; readonly operation: string };
function listener() {
  const told: Told[] = [];
  return { told, emit: async (event: { payload: unknown }) => void told.push(event.payload as Told) };
}
const memory = (root: string, name = 'MEMORY.md') => path.join(root, '.metis', name);
const read = (root: string, name?: string) => fs.readFileSync(memory(root, name), 'utf8');
const add = (entry: string, file = 'MEMORY.md') => ({ file, entry });

describe('a write of memory', () => {
  it('creates folder and file, and tells hashes and sizes that are those of the bytes', async () => {
    const root = workspace();
    const { told, emit } = listener();
    const { output } = call(memoryAdd, root, add('- é'), { emit });
    expect(textOf(await output)).toBe('appended to MEMORY.md (5 bytes total)');
    expect(read(root)).toBe('- é\n');
    const event = {
      file: 'MEMORY.md',
      operation: 'add',
      before_hash: sha256Hex(''),
      after_hash: sha256Hex('- é\n'),
      before_size_bytes: 0,
      after_size_bytes: 5,
    };
    expect(told).toEqual([event]);
    expect(await output).toMatchObject({
      metadata: { ...event, over_soft_cap: false },
      files_modified: ['.metis/MEMORY.md'],
    });
    expect(fs.readdirSync(path.dirname(memory(root)))).toEqual(['MEMORY.md']);
  });

  // Promise 10.5: each writer waits for the one before it and its event.
  it('waits for the one before it, also until that one was told', async () => {
    const root = workspace();
    const { told, emit } = listener();
    const slow = async (event: { payload: unknown }) => {
      await new Promise(setImmediate);
      await emit(event);
    };
    const entries = Array.from({ length: 20 }, (_, i) => `- ${i}`);
    await Promise.all(entries.map((entry) => run(memoryAdd, root, add(entry), { emit: slow })));
    expect(read(root).split('\n').sort()).toEqual(['', ...entries].sort());
    for (const [i, event] of told.entries())
      expect(event.before_hash).toBe(i === 0 ? sha256Hex('') : told[i - 1]!.after_hash);
    expect(told).toHaveLength(20);
  });

  it('leaves the file to whoever saved it in the same moment, and says so', async () => {
    const root = workspace({ '.metis/MEMORY.md': '- a\n' });
    const folder = path.join(root, '.metis');
    const answer = failure(call(memoryAdd, root, add('- b')).output);
    // The new text lies beside the old one before it takes its place.
    while (fs.readdirSync(folder).length === 1) await new Promise(setImmediate);
    fs.writeFileSync(path.join(folder, 'MEMORY.md'), '- theirs\n');
    expect((await answer).message).toBe(
      'MEMORY.md cannot be used: it was changed by another program at the same time; try again',
    );
    expect(read(root)).toBe('- theirs\n');
    expect(fs.readdirSync(folder)).toEqual(['MEMORY.md']);
  });

  it('of the same content changes nothing and is told to nobody', async () => {
    const root = workspace({ '.metis/USER.md': 'likes tea' });
    const { told, emit } = listener();
    const same = { file: 'USER.md', content: 'likes tea' };
    expect(await run(memoryConsolidate, root, same, { emit })).toBe('consolidated USER.md: 9 → 9 bytes');
    await run(memoryReplace, root, { file: 'USER.md', old: 'tea', new: 'tea' }, { emit });
    expect(await run(memoryConsolidate, root, { file: 'MEMORY.md', content: '' }, { emit })).toContain('0 → 0');
    expect([told, fs.existsSync(memory(root))]).toEqual([[], false]);
  });

  it('may be refused its event: the file stays as written, and the next one goes on from there', async () => {
    const root = workspace();
    const broken = async () => Promise.reject(new Error('no disk'));
    await expect(run(memoryAdd, root, add('- a'), { emit: broken })).rejects.toThrow('no disk');
    const { told, emit } = listener();
    await run(memoryAdd, root, add('- b'), { emit });
    expect(told[0]?.before_hash).toBe(sha256Hex('- a\n'));
    expect(read(root)).toBe('- a\n- b\n');
  });

  // Promise 10.6: above the soft cap a hint, above the hard cap an error, no write and no event, counted in bytes.
  it('above the soft cap says so, and above the hard cap leaves the file alone, in bytes', async () => {
    const root = workspace({ '.metis/MEMORY.md': `${'é'.repeat(1020)}\n` });
    const { told, emit } = listener();
    expect(await run(memoryAdd, root, add('123456'), { emit })).toBe('appended to MEMORY.md (2048 bytes total)');
    expect(await run(memoryReplace, root, { file: 'MEMORY.md', old: '123456', new: '1234567' }, { emit })).toBe(
      'replaced in MEMORY.md (2049 bytes total) — over soft cap; consider memory_consolidate',
    );
    const before = read(root);
    const refused = await failure(call(memoryAdd, root, add('x'.repeat(2047)), { emit }).output);
    expect([refused.error_class, refused.message]).toEqual([
      'execution_error',
      'MEMORY.md write rejected: 4097 bytes exceeds hard cap 4096; consolidate before adding more',
    ]);
    expect([read(root), told.length]).toEqual([before, 2]);
  });

  it('is refused where a link leads out of the workspace, or to what is protected, and nothing changes there', async () => {
    const root = workspace({ '.metis/trust.yaml': 'always_allow: []\n' });
    const outside = path.join(path.dirname(root), 'outside.md');
    fs.writeFileSync(outside, 'theirs');
    fs.symlinkSync(outside, memory(root));
    fs.symlinkSync('trust.yaml', memory(root, 'USER.md'));
    for (const file of ['MEMORY.md', 'USER.md']) {
      const refused = await failure(call(memoryConsolidate, root, { file, content: 'x' }).output);
      expect(refused.error_class).toBe('execution_error');
      expect(refused.message).toMatch(new RegExp(`^${file} cannot be used: Path '.metis/${file}' (escapes|is prot)`));
    }
    expect(fs.readFileSync(outside, 'utf8')).toBe('theirs');
    expect(read(root, 'trust.yaml')).toBe('always_allow: []\n');
  });

  it('is refused in place of a folder, without naming where the workspace lies', async () => {
    const root = workspace({ '.metis/MEMORY.md/': '' });
    const refused = await failure(call(memoryAdd, root, add('- a')).output);
    expect(refused.message).toBe('MEMORY.md cannot be used: it is not a regular file');
  });

  it('is not made by a worker, nor by a call that was stopped before its turn', async () => {
    const root = workspace();
    const refused = await failure(call(memoryAdd, root, add('- a'), { is_worker: true }).output);
    expect(refused.error_class).toBe('execution_error');
    await expect(run(memoryAdd, root, add('- a'), { signal: AbortSignal.abort(new Error('stop')) })).rejects.toThrow();
    expect(fs.existsSync(memory(root))).toBe(false);
  });

  it('brings a file that a person let grow without bound back under its cap', async () => {
    const root = workspace({ '.metis/MEMORY.md': 'm'.repeat(3_000_000) });
    const { told, emit } = listener();
    const refused = await failure(call(memoryAdd, root, add('- a'), { emit }).output);
    expect(refused.message).toContain('3000004 bytes exceeds hard cap 4096');
    const shorter = { file: 'MEMORY.md', content: 'm' };
    expect(await run(memoryConsolidate, root, shorter, { emit })).toBe('consolidated MEMORY.md: 3000000 → 1 bytes');
    expect(told[0]?.before_hash).toBe(sha256Hex('m'.repeat(3_000_000)));
  });

  it('leaves a file beyond 64 MiB to the person who made it', async () => {
    const root = workspace({ '.metis/MEMORY.md': '' });
    fs.truncateSync(memory(root), 10_000_000_000);
    const refused = await failure(call(memoryConsolidate, root, { file: 'MEMORY.md', content: '' }).output);
    expect(refused.message).toBe('MEMORY.md cannot be used: it has more than 67108864 bytes; remove it by hand');
    expect(fs.statSync(memory(root)).size).toBe(10_000_000_000);
  });
});
