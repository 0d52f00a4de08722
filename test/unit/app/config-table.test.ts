// The configuration page lists every key as the schema has it.
import fs from 'node:fs';
import path from 'node:path';
import { expect, it } from 'vitest';
import { CONFIG_KEYS } from '#server/config.ts';
import { CONFIG_MEANING, withKeyTable } from '#server/config-table.ts';

const ROOT = path.resolve(import.meta.dirname, '../../..');
const page = fs.readFileSync(path.join(ROOT, 'docs/configuration.md'), 'utf8');

it('the table of keys is what the schema says', () => {
  expect(withKeyTable(page) === page, 'docs/configuration.md is out of date: run "npm run gen"').toBe(true);
  expect(Object.keys(CONFIG_MEANING)).toEqual([...CONFIG_KEYS.keys()]);
  expect(page).toMatch(/\| `delegation\.max_depth` +\| integer from 1 to 8 +\| `5` +\| \w/);
  expect(page).toMatch(/\| `budgets\.daily_usd` +\| US dollars as text or null +\| `null` +\|/);
  expect(page).toMatch(/\| `budgets\.warn_ratio` +\| number above 0 to 1 +\| `0\.8` +\|/);
});

it('a page without its marks is refused, not overwritten', () => {
  expect(() => withKeyTable('# Configuration')).toThrow(/lacks/);
});

it('pages for users send nobody to the source, which the package does not hold', () => {
  const pages = ['concepts', 'configuration', 'http', 'operations', 'replay', 'security'].map((n) => `docs/${n}.md`);
  const hits = ['README.md', ...pages].filter((file) =>
    /`src\/\S+\.ts`/.test(fs.readFileSync(path.join(ROOT, file), 'utf8')),
  );
  expect(hits).toEqual([]);
});
