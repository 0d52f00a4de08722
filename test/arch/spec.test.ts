// The specification in the repository: complete, linked, and every reference to it leads somewhere.
import fs from 'node:fs';
import path from 'node:path';
import { describe, expect, it } from 'vitest';
import { projectTexts, ROOT, typescriptFiles } from './source.ts';

const FOLDER = 'docs/spec';
const CHAPTER = /^(\d\d)-[a-z-]+\.md$/;

interface Chapter {
  readonly file: string;
  readonly text: string;
  /** Numbers of its sections: `3`, `3.1`; of chapters that number them so, `11.3`. */
  readonly sections: ReadonlySet<string>;
  /** Numbers of its Acceptance items. */
  readonly items: ReadonlySet<string>;
}

const chapters = new Map<string, Chapter>(
  fs
    .readdirSync(path.join(ROOT, FOLDER))
    .filter((name) => CHAPTER.test(name))
    .map((file) => {
      const text = fs.readFileSync(path.join(ROOT, FOLDER, file), 'utf8');
      const at = text.search(/^## Acceptance/m);
      const end = at < 0 ? -1 : text.slice(at + 3).search(/^## /m);
      const list = at < 0 ? '' : text.slice(at, end < 0 ? undefined : at + 3 + end);
      const headings = [...text.matchAll(/^#{2,4} (\d+(?:\.\d+)*)/gm)].map((m) => m[1]!);
      // Numbered points of a section may be referred to as well: `02 §3.5`.
      const points = text.split(/^(?=#{2,4} )/m).flatMap((part) => {
        const section = /^#{2,4} (\d+(?:\.\d+)*)/.exec(part)?.[1];
        return section === undefined ? [] : [...part.matchAll(/^ *(\d+)\. /gm)].map((m) => `${section}.${m[1]}`);
      });
      return [
        file.slice(0, 2),
        { file, text, sections: new Set([...headings, ...points]), items: itemsOf(list) },
      ] as const;
    }),
);

function itemsOf(list: string): Set<string> {
  return new Set([...list.matchAll(/^(?:\| *)?(\d+)(?:\. | *\| )/gm)].map((m) => m[1]!));
}

/** References as comments and chapters write them: `04 §13`, `11.3`; with what they name. */
function references(text: string): { readonly shown: string; readonly chapter: string; readonly section: string }[] {
  const bySign = [...text.matchAll(/\b([0-2]\d) §(\d+(?:\.\d+)*)/g)].map((m) => ({
    shown: m[0],
    chapter: m[1]!,
    section: m[2]!,
  }));
  const byNumber = [...text.matchAll(/\((?:chapter )?(1[12])\.(\d+(?:\.\d+)*)\)/g)].map((m) => ({
    shown: m[0],
    chapter: m[1]!,
    section: `${m[1]}.${m[2]}`,
  }));
  return [...bySign, ...byNumber];
}

function leadsNowhere(text: string): string[] {
  return references(text)
    .filter(({ chapter, section }) => {
      const sections = chapters.get(chapter)?.sections;
      return !sections || (!sections.has(section) && !sections.has(`${chapter}.${section}`));
    })
    .map(({ shown }) => shown);
}

describe('the specification', () => {
  it('has every chapter in its table of contents, and each link of it leads to a file', () => {
    const contents = fs.readFileSync(path.join(ROOT, FOLDER, 'README.md'), 'utf8');
    const linked = [...contents.matchAll(/\]\(([^)#]+)\)/g)].map((m) => m[1]!);
    expect([...chapters.keys()]).toEqual([...Array(24).keys()].map((n) => String(n).padStart(2, '0')));
    expect(linked).toEqual(expect.arrayContaining([...chapters.values()].map(({ file }) => file)));
    expect(linked.filter((name) => !fs.existsSync(path.join(ROOT, FOLDER, name)))).toEqual([]);
  });

  it('has every section that a comment in the code names', () => {
    const sources = typescriptFiles('src');
    expect(sources.flatMap((file) => references(file.text)).length).toBeGreaterThan(200);
    const wrong = sources.flatMap((file) => leadsNowhere(file.text).map((shown) => `${file.path}: ${shown}`));
    expect(wrong).toEqual([]);
  });

  it('has every section that a chapter or a page names', () => {
    const pages = projectTexts().filter((file) => /^docs\/.*\.md$/.test(file.path));
    const wrong = pages.flatMap((file) => leadsNowhere(file.text).map((shown) => `${file.path}: ${shown}`));
    expect(wrong).toEqual([]);
  });

  it('has every promise of the promise table, and the table names tests that exist', () => {
    const rows = fs
      .readFileSync(path.join(ROOT, 'test/CONTRACT.md'), 'utf8')
      .split('\n')
      .map((line) => line.split('|').map((cell) => cell.trim()))
      .filter((cells) => /^\d\d\.\d+$/.test(cells[1] ?? ''));
    expect(rows.length).toBeGreaterThan(300);
    const wrong = rows
      .filter(([, id, , file, title]) => {
        const [chapter, item] = id!.split('.');
        const test = path.join(ROOT, file!.replaceAll('`', ''));
        return (
          !chapters.get(chapter!)?.items.has(item!) ||
          !fs.existsSync(test) ||
          !fs.readFileSync(test, 'utf8').includes(title!.replaceAll('`', ''))
        );
      })
      .map(([, id, , file]) => `${id} ${file}`);
    expect(wrong).toEqual([]);
  });
});

it('every file that the pages about the code name is there', () => {
  const pages = ['CONTRIBUTING.md', 'docs/architecture.md'];
  const named = pages.flatMap((page) =>
    [...fs.readFileSync(path.join(ROOT, page), 'utf8').matchAll(/`((?:src|test|scripts|docs|config)\/[^`\s]+)`/g)].map(
      (m) => m[1]!,
    ),
  );
  expect(named.length).toBeGreaterThan(50);
  const written = named.filter((file) => !/[A-Z]{4,}/.test(path.basename(file)) && !/\/NAME\//.test(file));
  expect(written.filter((file) => !fs.existsSync(path.join(ROOT, file)))).toEqual([]);
});
