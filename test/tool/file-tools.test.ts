// read_file, write_file, edit_file and list_files on real files (09 §13).
import fs from 'node:fs';
import path from 'node:path';
import { describe, expect, it } from 'vitest';
import { createFileLedger } from '#core/engine/state/file-ledger.ts';
import { MAX_OUTPUT_BYTES } from '#core/policy/tools/tool-output.ts';
import type { SessionId } from '#protocol/ids.ts';
import { editFile, writeFile } from '#tools/builtin/edit-files.ts';
import { listFiles } from '#tools/builtin/list-files.ts';
import { readFile } from '#tools/builtin/read-file.ts';
import { createToolSet } from '#tools/tool-registry.ts';
import { call, failure, run, workspace } from './call.ts';

const registry = createToolSet([readFile, writeFile, editFile, listFiles]);
const lines = (tool: string, input: unknown) => registry.validate(tool, input).map((i) => `${i.path}: ${i.message}`);

describe('the input of file tools', () => {
  it('is refused by path: a number where a path belongs, an unknown key, a missing one', () => {
    expect(lines('read_file', { path: 5 })).toEqual(['path: must be string']);
    expect(lines('write_file', { path: '', contents: '' })).toEqual([
      'content: is required',
      'contents: is not a known property',
      'path: must NOT have fewer than 1 characters',
    ]);
    expect(lines('read_file', { path: 'a', offset: 0, limit: 1.5 })).toHaveLength(2);
    expect(lines('edit_file', { path: 'a', old: '', new: '' })).toHaveLength(1);
    expect(lines('list_files', { max_entries: 5001 })).toHaveLength(1);
    expect(lines('list_files', {})).toEqual([]);
  });
});

describe('read_file', () => {
  it.each([
    ['plain', 'one\ntwo\n'],
    ['without a last line ending', 'one\ntwo'],
    ['with a byte order mark and CRLF', '\ufeffone\r\ntwo\rthree'],
    ['empty', ''],
  ])('returns a %s file as it is', async (_what, text) => {
    expect(await run(readFile, workspace({ a: text }), { path: 'a' })).toBe(text);
  });

  it('returns a slice under a header, lines with their own endings', async () => {
    const root = workspace({ a: 'one\r\ntwo\rthree\nfour' });
    expect(await run(readFile, root, { path: 'a', offset: 2, limit: 2 })).toBe(
      '(showing lines 2-3 of 4)\ntwo\rthree\n',
    );
    expect(await run(readFile, root, { path: 'a', offset: 4 })).toBe('(showing lines 4-4 of 4)\nfour');
    expect(await run(readFile, root, { path: 'a', limit: 99 })).toBe(
      '(showing lines 1-4 of 4)\none\r\ntwo\rthree\nfour',
    );
  });

  it('says how long the file is when the offset is past its end', async () => {
    const root = workspace({ a: 'one\n' });
    expect(await run(readFile, root, { path: 'a', offset: 2 })).toBe('(file has 1 line(s); offset 2 is past end)');
  });

  it('cuts at a whole line and names the offset to go on from', async () => {
    const line = `${'x'.repeat(99)}\n`;
    const root = workspace({ big: line.repeat(5000) });
    const kept = Math.floor(MAX_OUTPUT_BYTES / 100);
    const text = await run(readFile, root, { path: 'big' });
    expect(text).toBe(
      `${line.repeat(kept)}\n... [truncated at line ${kept} of 5000; continue with offset=${kept + 1}]`,
    );
    const rest = await run(readFile, root, { path: 'big', offset: kept + 1 });
    expect(rest).toBe(`(showing lines ${kept + 1}-5000 of 5000)\n${line.repeat(5000 - kept)}`);
  });

  it('returns a file of exactly 256 KiB whole, in characters of several bytes', async () => {
    const text = 'é'.repeat(MAX_OUTPUT_BYTES / 2);
    expect(await run(readFile, workspace({ a: text }), { path: 'a' })).toBe(text);
  });

  it('shows the start of a line that is too long by itself', async () => {
    const root = workspace({ a: `${'x'.repeat(MAX_OUTPUT_BYTES + 10)}\nnext\n` });
    expect(await run(readFile, root, { path: 'a' })).toBe(
      `${'x'.repeat(MAX_OUTPUT_BYTES)}\n... [output truncated: 11 bytes omitted]\n... [truncated at line 1 of 2; continue with offset=2]`,
    );
  });

  it('splits lines the same way wherever the pieces of the file end', async () => {
    // A pair of CR and LF on the border of two 64 KiB pieces, and a character too.
    for (const shift of [0, 1, 2, 3]) {
      const first = 'x'.repeat(65_536 - shift);
      const root = workspace({ a: `${first}\r\n€\rend` });
      expect(await run(readFile, root, { path: 'a', offset: 2 })).toBe('(showing lines 2-3 of 3)\n€\rend');
    }
  });

  it('names what it cannot read as the model did', async () => {
    const root = workspace({ 'bin.dat': new Uint8Array([0x61, 0xff, 0x62]), 'dir/': '' });
    expect((await failure(call(readFile, root, { path: 'none.txt' }).output)).message).toBe('file not found: none.txt');
    expect((await failure(call(readFile, root, { path: './bin.dat' }).output)).message).toBe(
      'not valid UTF-8 text: ./bin.dat',
    );
    expect((await failure(call(readFile, root, { path: 'dir' }).output)).error_class).toBe('execution_error');
  });
});

describe('write_file', () => {
  it('ends with its time, however large the file is that it would replace', async () => {
    const root = workspace({ sparse: 'x' });
    fs.truncateSync(path.join(root, 'sparse'), 2 ** 40);
    const time = new AbortController();
    const { output } = call(writeFile, root, { path: 'sparse', content: 'y' }, { signal: time.signal });
    setImmediate(() => time.abort(new Error('late')));
    await expect(output).rejects.toThrow('late');
    expect(fs.statSync(path.join(root, 'sparse')).size).toBe(2 ** 40);
  });

  it('creates, overwrites and counts bytes', async () => {
    const root = workspace({ a: 'old' });
    const output = await call(writeFile, root, { path: './b/c.txt', content: 'é\n' }).output;
    expect(output.content).toEqual([{ type: 'text', text: 'Wrote 3 bytes to ./b/c.txt' }]);
    expect(output.files_modified).toEqual(['b/c.txt']);
    expect(fs.readFileSync(path.join(root, 'b/c.txt'), 'utf8')).toBe('é\n');
    expect(output.files_created).toEqual(['b/c.txt']);
    const known = createFileLedger().knowledge('sess_01' as SessionId);
    await run(readFile, root, { path: 'a', limit: 1 }, { known });
    const again = await call(writeFile, root, { path: 'a', content: '' }, { known }).output;
    expect([again.files_modified, again.files_created]).toEqual([['a'], []]);
    expect(fs.readFileSync(path.join(root, 'a'), 'utf8')).toBe('');
  });

  it('overwrites nothing that was not read, or has changed since', async () => {
    const root = workspace({ a: 'old' });
    const known = createFileLedger().knowledge('sess_01' as SessionId);
    const refused = async (factory: typeof writeFile, input: Record<string, unknown>) =>
      (await failure(call(factory, root, input, { known }).output)).message;
    expect(await refused(writeFile, { path: 'a', content: '' })).toBe('you have not read it: a; read it first');
    await run(readFile, root, { path: 'a' }, { known });
    fs.writeFileSync(path.join(root, 'a'), 'older');
    expect(await refused(writeFile, { path: 'a', content: '' })).toBe('changed since you read it: a; read it again');
    expect(await refused(editFile, { path: 'a', old: 'old', new: '' })).toContain('changed since you read it');
    expect(fs.readFileSync(path.join(root, 'a'), 'utf8')).toBe('older');
    fs.rmSync(path.join(root, 'a'));
    await run(writeFile, root, { path: 'a', content: 'new' }, { known });
    await run(editFile, root, { path: 'a', old: 'new', new: 'newer' }, { known });
    expect(fs.readFileSync(path.join(root, 'a'), 'utf8')).toBe('newer');
  });

  // Promise 09.5: write_file to trust.yaml or MEMORY.md is refused, the file unchanged.
  it.each(['.metis/trust.yaml', '.metis/MEMORY.md'])('leaves %s unchanged', async (file) => {
    const root = workspace({ [file]: 'before' });
    const error = await failure(call(writeFile, root, { path: file, content: 'after' }).output);
    expect([error.error_class, error.message]).toEqual(['permission_denied', `Path '${file}' is protected`]);
    expect(fs.readFileSync(path.join(root, file), 'utf8')).toBe('before');
  });

  it('does nothing when the call is cancelled before it starts', async () => {
    const root = workspace();
    const signal = AbortSignal.abort(new Error('stop'));
    await expect(call(writeFile, root, { path: 'a', content: '' }, { signal }).output).rejects.toThrow('stop');
    expect(fs.readdirSync(root)).toEqual([]);
  });
});

describe('edit_file', () => {
  it('replaces the one place, literally', async () => {
    const root = workspace({ a: 'x.y x+y' });
    const output = await call(editFile, root, { path: 'a', old: 'x.y', new: '$& $1 $$' }).output;
    expect(output.content).toEqual([{ type: 'text', text: 'Edited a' }]);
    expect(output.files_modified).toEqual(['a']);
    expect(fs.readFileSync(path.join(root, 'a'), 'utf8')).toBe('$& $1 $$ x+y');
  });

  // Promise 09.15: An edit whose text is not unique says how often it stands there and changes nothing.
  it.each([
    ['z', 'text to replace not found in a'],
    ['ab', 'text to replace appears 2 times in a; must be unique'],
    ['aa', 'text to replace appears 2 times in a; must be unique'],
  ])('leaves the file alone when %s is not there once', async (old, message) => {
    const root = workspace({ a: 'ab ab aaa' });
    expect((await failure(call(editFile, root, { path: 'a', old, new: '' }).output)).message).toBe(message);
    expect(fs.readFileSync(path.join(root, 'a'), 'utf8')).toBe('ab ab aaa');
  });

  // Promise 09.11: Parallel edits of one file all take effect.
  it('loses none of many edits of one file at once', async () => {
    const names = Array.from({ length: 20 }, (_, i) => `<${i}>`);
    const root = workspace({ a: names.join('') });
    await Promise.all(names.map((name) => run(editFile, root, { path: 'a', old: name, new: `[${name}]` })));
    expect(fs.readFileSync(path.join(root, 'a'), 'utf8')).toBe(names.map((name) => `[${name}]`).join(''));
  });

  it('keeps line endings and the byte order mark, and refuses what is no text', async () => {
    const root = workspace({ a: '\ufeffone\r\ntwo\r\n', b: new Uint8Array([0xff]) });
    await run(editFile, root, { path: 'a', old: 'two', new: '2' });
    expect(fs.readFileSync(path.join(root, 'a'), 'utf8')).toBe('\ufeffone\r\n2\r\n');
    expect((await failure(call(editFile, root, { path: 'b', old: 'a', new: 'b' }).output)).message).toBe(
      'not valid UTF-8 text: b',
    );
  });
});

describe('list_files', () => {
  it('sorts as bytes, whatever characters the names have', async () => {
    const names = ['a', 'z', 'é', '\u2603', '\uff5e', '\u{1f600}'];
    const root = workspace(Object.fromEntries(names.map((name) => [name, ''])));
    expect(await run(listFiles, root, {})).toBe(names.join('\n'));
  });

  it('sorts names by their bytes, folders with a slash', async () => {
    const root = workspace({
      b: '',
      'a/x': '',
      'a-b': '',
      Z: '',
      '.h': '',
      '\uffee': '',
      '😀': '',
      'node_modules/': '',
    });
    fs.symlinkSync('/etc', path.join(root, 'link'));
    expect(await run(listFiles, root, {})).toBe('.h\nZ\na-b\na/\nb\nlink\nnode_modules/\n\uffee\n😀');
  });

  it('lists recursively without links, caches and dependencies', async () => {
    const root = workspace({ 'a/b/c': '', 'a/d': '', 'a-b': '', 'node_modules/x': '', 'a/dist/y': '', '.git/z': '' });
    fs.symlinkSync('a', path.join(root, 'link'));
    expect(await run(listFiles, root, { recursive: true })).toBe('a-b\na/\na/b/\na/b/c\na/d\nlink');
    expect(await run(listFiles, root, { path: 'a', recursive: true })).toBe('b/\nb/c\nd');
  });

  it('says how many entries it left out', async () => {
    const root = workspace({ 'a/1': '', 'a/2': '', b: '' });
    expect(await run(listFiles, root, { recursive: true, max_entries: 2 })).toBe('a/\na/1\n... [2 more]');
  });

  it('skips what may not be read and marks an empty folder', async () => {
    const root = workspace({
      '.metis/trust.yaml': '',
      '.metis/MEMORY.md': '',
      '.metis/workers/w.yaml': '',
      'empty/': '',
    });
    expect(await run(listFiles, root, { path: '.metis' })).toBe('MEMORY.md');
    expect(await run(listFiles, root, { recursive: true })).toBe('.metis/\n.metis/MEMORY.md\nempty/');
    expect(await run(listFiles, root, { path: 'empty' })).toBe('(empty)');
    expect((await failure(call(listFiles, root, { path: 'none' }).output)).message).toBe('directory not found: none');
    expect((await failure(call(listFiles, root, { path: '.metis/workers' }).output)).error_class).toBe(
      'permission_denied',
    );
  });
});
