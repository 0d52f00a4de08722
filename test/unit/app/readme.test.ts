// What the README shows works as it stands there.
import fs from 'node:fs';
import path from 'node:path';
import { expect, it } from 'vitest';
import { createModelRegistry, parseRegistry } from '#core/policy/registry/model-registry.ts';
import { parsePolicyFile } from '#core/policy/routing/policy-file.ts';

const ROOT = path.resolve(import.meta.dirname, '../../..');
const readme = fs.readFileSync(path.join(ROOT, 'README.md'), 'utf8');

it('its routing rule is valid with the shipped registry', () => {
  const file = parseRegistry(fs.readFileSync(path.join(ROOT, 'config/registry.yaml'), 'utf8'), 'registry.yaml');
  if (!file.ok) throw new Error(file.error.join('\n'));
  const registry = createModelRegistry(file.value, new Set(file.value.adapters.keys()));
  const rule = /<<'YAML'\n([\s\S]*?)YAML\n/.exec(readme)![1]!;
  expect(parsePolicyFile(rule, 'workspace', registry)).toMatchObject({ ok: true, value: { rules: [{}] } });
});

it('nothing that it and the guides show works in the example itself', () => {
  const shown = ['README.md', ...fs.globSync('docs/*.md', { cwd: ROOT })].map((file) => ({
    file,
    text: fs.readFileSync(path.join(ROOT, file), 'utf8'),
  }));
  // A model edits its workspace, and a clone's example is what the demo and its tests begin with.
  const wrong = shown.filter(({ text }) => /(?:workspace_path|--workspace)\W[^\n]*examples\//.test(text));
  expect(wrong.map(({ file }) => file)).toEqual([]);
});

it('its links lead somewhere', () => {
  const missing = ['README.md', ...fs.globSync('docs/**/*.md', { cwd: ROOT })].flatMap((file) =>
    [...withoutCode(file).matchAll(/\]\((?!https?:)([^)#]+)/g)]
      .map((match) => path.join(path.dirname(file), match[1]!))
      .filter((target) => !fs.existsSync(path.join(ROOT, target)))
      .map((target) => `${file}: ${target}`),
  );
  expect(missing).toEqual([]);
});

function withoutCode(file: string): string {
  return fs.readFileSync(path.join(ROOT, file), 'utf8').replaceAll(/`[^`\n]*`/g, '');
}
