// The benchmark and the scripts are not compiled, so that nothing else finds an import that a renamed file or function has broken.
import { readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { parse } from '@babel/parser';
import { expect, test } from 'vitest';

const ROOT = path.resolve(import.meta.dirname, '..', '..');

/** @returns `file: import of name` for each name of `src` that a script imports and that is not exported there */
function listBrokenImports(file: string): string[] {
  const program = parse(readFileSync(path.join(ROOT, file), 'utf8'), { sourceType: 'module' }).program;
  return program.body.flatMap((node) => {
    if (node.type !== 'ImportDeclaration' || !node.source.value.startsWith('#')) return [];
    const target = path.join('src', node.source.value.slice(1));
    const names = node.specifiers.map(({ local, ...rest }) =>
      'imported' in rest && rest.imported.type === 'Identifier' ? rest.imported.name : local.name,
    );
    const exported = listExports(target);
    return names.filter((name) => !exported.includes(name)).map((name) => `${file}: ${name} of ${target}`);
  });
}

function listExports(file: string): string[] {
  let text: string;
  try {
    text = readFileSync(path.join(ROOT, file), 'utf8');
  } catch {
    return [];
  }
  return [...text.matchAll(/^export (?:async )?(?:function|const|class) (\w+)/gm)].map(([, name]) => name!);
}

test('every function that the benchmark and the scripts import is exported where they look for it', () => {
  const files = ['bench', 'bench/measures', 'scripts'].flatMap((folder) =>
    readdirSync(path.join(ROOT, folder))
      .filter((name) => name.endsWith('.mjs'))
      .map((name) => `${folder}/${name}`),
  );
  expect(files.length).toBeGreaterThan(20);
  expect(files.flatMap(listBrokenImports)).toEqual([]);
});
