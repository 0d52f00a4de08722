// The source tree as the arch tests read it: files, imports, tracked text.
import { execFileSync } from 'node:child_process';
import fs from 'node:fs';
import path from 'node:path';

export const ROOT = path.resolve(import.meta.dirname, '../..');

export interface SourceFile {
  /** Relative to the root, `/` separated. */
  readonly path: string;
  readonly text: string;
}

/** Every TypeScript file below a folder of the root, sorted. */
export function typescriptFiles(folder: string): SourceFile[] {
  const found = fs.readdirSync(path.join(ROOT, folder), { recursive: true, encoding: 'utf8' });
  return found
    .filter((name) => /\.tsx?$/.test(name))
    .sort()
    .map((name) => {
      const file = `${folder}/${name}`;
      return { path: file, text: fs.readFileSync(path.join(ROOT, file), 'utf8') };
    });
}

/** What git would commit: tracked files and new ones that are not ignored, as far as they are text. */
export function projectTexts(): SourceFile[] {
  const names = execFileSync('git', ['ls-files', '-z', '--cached', '--others', '--exclude-standard'], { cwd: ROOT });
  return names
    .toString('utf8')
    .split('\0')
    .filter((name) => name !== '' && fs.existsSync(path.join(ROOT, name)))
    .map((name) => ({ path: name, text: fs.readFileSync(path.join(ROOT, name), 'utf8') }))
    .filter((file) => !file.text.includes('\0'));
}

/** Module specifiers of static and dynamic imports and re-exports, `import type` included. */
export function imports(text: string): string[] {
  const pattern =
    /(?:^|\n)\s*(?:import|export)\b[^'";]*?\bfrom\s*'([^']+)'|(?:^|\n)\s*import\s*'([^']+)'|\bimport\(\s*'([^']+)'\s*\)/g;
  return [...text.matchAll(pattern)].map((m) => (m[1] ?? m[2] ?? m[3])!);
}

/** Specifiers that are not `import type` only. */
export function valueImports(text: string): string[] {
  return imports(text.replace(/(?:^|\n)\s*(?:import|export) type\b[^;]*;/g, '\n'));
}

/** The file that an import of another of our files names, below the root; `null` for a library. */
export function resolveImport(from: string, name: string): string | null {
  if (name.startsWith('#')) return `src/${name.slice(1)}`;
  return name.startsWith('.') ? path.posix.join(path.posix.dirname(from), name) : null;
}
