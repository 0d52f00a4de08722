// Making folders: with those above, with their rights, and with an end where none can be made.
import fs from 'node:fs';
import path from 'node:path';
import { describe, expect, it } from 'vitest';
import { makeFolder } from '#protocol/folder.ts';
import { tempFolder } from '../../support/engine.ts';

describe('making a folder', () => {
  it('makes those above it, gives all of them the mode, and is content with one that exists', () => {
    const root = tempFolder();
    const deep = path.join(root, 'a', 'b', 'c');
    makeFolder(deep, 0o700);
    makeFolder(deep);
    const modes = ['a', 'a/b', 'a/b/c'].map((name) => fs.statSync(path.join(root, name)).mode & 0o777);
    expect(modes).toEqual([0o700, 0o700, 0o700]);
    fs.symlinkSync(deep, path.join(root, 'link'));
    makeFolder(path.join(root, 'link', 'd'));
    expect(fs.existsSync(path.join(deep, 'd'))).toBe(true);
  });

  it("throws the system's error where a file or nothing at all is in the way", () => {
    const root = tempFolder();
    fs.writeFileSync(path.join(root, 'file'), '');
    fs.symlinkSync(path.join(root, 'nowhere'), path.join(root, 'dangling'));
    expect(() => makeFolder(path.join(root, 'file'))).toThrow('EEXIST');
    expect(() => makeFolder(path.join(root, 'file', 'below'))).toThrow(/EEXIST|ENOTDIR/);
    expect(() => makeFolder(path.join(root, 'dangling'))).toThrow('EEXIST');
  });

  it.runIf(fs.existsSync('/proc/self'))('has an end where the system knows of no folder to make', () => {
    expect(() => makeFolder('/proc/nope/deeper')).toThrow('ENOENT');
  });
});
