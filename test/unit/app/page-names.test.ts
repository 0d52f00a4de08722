// What README and pages name exists: commands and flags, configuration keys, operations, npm scripts, headings behind links.
import fs from 'node:fs';
import path from 'node:path';
import type { Command } from 'commander';
import { expect, it } from 'vitest';
import { EVENT_TYPES } from '#protocol/event.ts';
import { CONFIG_KEYS } from '#server/config.ts';
import type { CommandContext } from '#server/context.ts';
import { createProgram } from '#server/program.ts';

const ROOT = path.resolve(import.meta.dirname, '../../..');
const read = (file: string) => fs.readFileSync(path.join(ROOT, file), 'utf8');
const pages = ['README.md', 'CONTRIBUTING.md', ...fs.globSync('docs/*.md', { cwd: ROOT })].map((file) => {
  const text = read(file);
  const blocks = [...text.matchAll(/^```(?:sh|text)\n([\s\S]*?)^```/gm)].flatMap((match) => match[1]!.split('\n'));
  return { file, text, code: [...[...text.matchAll(/`([^`\n]+)`/g)].map((match) => match[1]!), ...blocks] };
});
/** `file: text` of each that `isWrong` finds in the code of a page. */
const findWrong = (isWrong: (code: string) => readonly string[]) =>
  pages.flatMap(({ file, code }) => code.flatMap((one) => isWrong(one).map((wrong) => `${file}: ${wrong}`)));

it('commands and their flags', () => {
  const program = createProgram({ version: '1' } as CommandContext, () => {});
  const wrong = findWrong((line) => {
    const [, called] = /^(?:npx )?metis ([a-z][^#|>]*)/.exec(line) ?? [];
    if (called === undefined || /^(?:help|completion)\b/.test(called)) return [];
    const words = called.replaceAll(/"[^"]*"/g, 'TEXT').split(/\s+/);
    let command: Command | undefined = program;
    while (command !== undefined && command.commands.length > 0 && /^[a-z][a-z-]*$/.test(words[0] ?? '')) {
      const found: Command | undefined = command.commands.find((one) => one.name() === words[0]);
      // `metis models update` and `metis models`: a command may have both.
      if (found === undefined && command !== program) break;
      command = found;
      words.shift();
    }
    if (command === undefined) return [line];
    const flags = command.options.map((option) => option.long);
    return words.filter((word) => word.startsWith('--') && !flags.includes(word)).map((word) => `${word} of ${line}`);
  });
  expect(wrong).toEqual([]);
});

it('configuration keys', () => {
  const keys = [...CONFIG_KEYS.keys()];
  const sections = new Set(keys.filter((key) => key.includes('.')).map((key) => key.split('.')[0]!));
  const wrong = findWrong((text) => {
    const [, key = ''] = /^([a-z_]+(?:\.[a-z_]+)+)(?:[:=].*)?$/.exec(text) ?? [];
    // Files and events are written the same way.
    if (/\.(?:json|yaml)$/.test(key) || EVENT_TYPES.includes(key as never)) return [];
    if (!sections.has(key.split('.')[0]!)) return [];
    const isKey = keys.some((one) => one === key || one.startsWith(`${key}.`) || key.startsWith(`${one}.`));
    return isKey ? [] : [key];
  });
  expect(wrong).toEqual([]);
});

it('operations of the API', () => {
  const { paths } = JSON.parse(read('openapi/openapi.json')) as { readonly paths: Record<string, object> };
  const known = Object.entries(paths).map(([name, operations]) => ({
    pattern: new RegExp(`^${name.replaceAll(/\{[^}]+\}/g, '[^/]+')}$`),
    methods: Object.keys(operations),
  }));
  // What is served beside the operations.
  const others = /^\/(?:$|v1\/|mcp$|docs$|openapi\.json$|events\.schema\.json$)/;
  const wrong = findWrong((text) => {
    const [, method = '', where = ''] = /^(GET|POST|PATCH|PUT|DELETE) (\/[^\s?…]*)/.exec(text) ?? [];
    if (method === '' || others.test(where)) return [];
    const found = known.some(({ pattern, methods }) => pattern.test(where) && methods.includes(method.toLowerCase()));
    return found ? [] : [text];
  });
  expect(wrong).toEqual([]);
});

it('npm scripts', () => {
  const { scripts } = JSON.parse(read('package.json')) as { readonly scripts: Record<string, string> };
  const wrong = findWrong((text) =>
    [...text.matchAll(/\bnpm run ([\w:]+)/g)].map((match) => match[1]!).filter((name) => scripts[name] === undefined),
  );
  expect(wrong).toEqual([]);
});

it('headings behind links', () => {
  const toAnchor = (heading: string) =>
    heading
      .replaceAll(/\[([^\]]*)\]\([^)]*\)/g, '$1')
      .toLowerCase()
      .replaceAll(/[^\p{L}\p{N}\s_-]/gu, '')
      .trim()
      .replaceAll(/\s/g, '-');
  const wrong = pages.flatMap(({ file, text }) =>
    [...text.matchAll(/\]\(((?!https?:)[^)#]*)#([^)]+)\)/g)]
      .filter(([, target = '', anchor = '']) => {
        const page = target === '' ? file : path.join(path.dirname(file), target);
        const anchors = [...read(page).matchAll(/^#+ (.*)$/gm)].map((match) => toAnchor(match[1]!));
        return !anchors.includes(anchor);
      })
      .map(([link]) => `${file}: ${link}`),
  );
  expect(wrong).toEqual([]);
});
