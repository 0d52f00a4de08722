// Test files that share a process leave it as they found it (vitest.config.ts: `together`).
import { expect, it } from 'vitest';
import { TOGETHER } from '../../vitest.config.ts';
import { type SourceFile, typescriptFiles } from './source.ts';

/** What reaches the files that run after this one; where there is a way back, the file must take it. */
const REACHES: readonly (readonly [does: RegExp, undone: RegExp | null])[] = [
  [/\bprocess\.env(?:\.\w+|\[[^\]]+\]) =[^=]|\bdelete process\.env\b/, null],
  [new RegExp(`\\bprocess\\.(?:chdir|umask|exit)\\(|\\bvi\\.(?:do)?${'Mock'}\\(`, 'i'), null],
  [/\bvi\.stubEnv\(/, /\bunstubAllEnvs\(/],
  [/\bvi\.stubGlobal\(/, /\bunstubAllGlobals\(/],
  [/\bvi\.useFakeTimers\(/, /\buseRealTimers\(/],
  [/\bprocess\.on\(/, /\bprocess\.(?:off|removeListener)\(/],
];
const reaching = (files: readonly SourceFile[]) =>
  files
    .filter((file) => REACHES.some(([does, undone]) => does.test(file.text) && !undone?.test(file.text)))
    .map((file) => file.path);

it('a test that shares its process changes no environment, folder, module or global for good', () => {
  const files = typescriptFiles('test').filter((file) => TOGETHER.some((folder) => file.path.startsWith(`${folder}/`)));
  expect(files.length).toBeGreaterThan(100);
  expect(reaching(files)).toEqual([]);
});

it('such a change is seen', () => {
  const texts = ["process.env.A = 'x';", "process.chdir('/');", "vi.mock('./a.ts');", "vi.stubGlobal('fetch', f);"];
  const planted = [...texts, "process.on('warning', f);"].map((text, i) => ({ path: `${i}.ts`, text }));
  expect(reaching(planted)).toHaveLength(planted.length);
  expect(reaching([{ path: 'a.ts', text: 'vi.useFakeTimers(); vi.useRealTimers(); process.env.A === b;' }])).toEqual(
    [],
  );
});
