// The scripts that the build makes of a bundle of modules: they do what the modules did, in the same places.
import fs from 'node:fs';
import { createRequire } from 'node:module';
import path from 'node:path';
import { afterEach, beforeEach, expect, it } from 'vitest';
import { ROOT, temporaryHome } from '../app/metis.ts';

const { makeScript } = (await import(path.join(ROOT, 'scripts/bundle-scripts.mjs'))) as {
  makeScript: (file: string) => void;
};
let home: ReturnType<typeof temporaryHome>;
beforeEach(() => {
  home = temporaryHome();
});
afterEach(() => home.remove());

function write(name: string, code: string): string {
  const file = path.join(home.path, name);
  fs.writeFileSync(file, `${code}\n//# sourceMappingURL=${name}.map\n`);
  fs.writeFileSync(`${file}.map`, JSON.stringify({ version: 3, sources: ['a.ts'], names: [], mappings: 'AAAA' }));
  return file;
}

it('imports, exports and imports at run time lead to the same values', async () => {
  makeScript(
    write(
      'other.cjs',
      'let count=1;count=2;function greet(){return "hello"}export default [1];export{count,greet as say};',
    ),
  );
  const main = write(
    'main.cjs',
    'import fs,{existsSync}from"node:fs";import*as path from"node:path";import list,{say,count as n}from"./other.cjs";' +
      'const later=import("./other.cjs");export{later,list,n,say};' +
      'const same=[fs.existsSync===existsSync,path.sep,import.meta.url];export{same};',
  );
  makeScript(main);
  const { later, list, n, say, same } = createRequire(main)(main);
  expect([list, n, say(), same]).toEqual([[1], 2, 'hello', [true, path.sep, main]]);
  expect(await later).toMatchObject({ default: [1], count: 2, say });
});

it('all that follows stays in its column, one line further down, and the map says so', () => {
  const code = 'import{sep}from"node:path";var a=sep;export default()=>import("./b.cjs");var marked=a;';
  const file = write('a.cjs', code);
  makeScript(file);
  const lines = fs.readFileSync(file, 'utf8').split('\n');
  expect(lines[1]!.indexOf('var marked')).toBe(code.indexOf('var marked'));
  expect(lines[1]!.indexOf('()=>')).toBe(code.indexOf('()=>'));
  expect(JSON.parse(fs.readFileSync(`${file}.map`, 'utf8')).mappings).toBe(';AAAA');
});

it('refuses what a script could not do', () => {
  const refused = (code: string) => () => makeScript(write('refused.cjs', code));
  expect(refused('var a;function set(){a=1}export{a,set};')).toThrow('a is exported and assigned again');
  expect(refused('await 1;')).toThrow();
  expect(refused('var $req=1;')).toThrow('$req is in use');
  expect(refused('var a=import.meta.dirname;')).toThrow('import.meta.dirname in a script');
  expect(refused('export default function f(){}')).toThrow('in a form that the bundler does not write');
  expect(refused('export*from"./other.cjs";')).toThrow('in a form that the bundler does not write');
});
