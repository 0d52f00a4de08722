// The lists of the specification hold what the code has: error codes, events, tables, endpoints.
import fs from 'node:fs';
import path from 'node:path';
import { getTableName, is } from 'drizzle-orm';
import { SQLiteTable } from 'drizzle-orm/sqlite-core';
import { expect, it } from 'vitest';
import { ERRORS } from '#protocol/errors.ts';
import { CATALOG } from '#protocol/event.ts';
import * as conversation from '#store/schema/conversation.ts';
import * as ledger from '#store/schema/ledger.ts';
import * as memory from '#store/schema/memory.ts';
import * as people from '#store/schema/people.ts';

const ROOT = path.resolve(import.meta.dirname, '../..');
const read = (file: string) => fs.readFileSync(path.join(ROOT, file), 'utf8');

/** A chapter's text from one heading to another. */
function between(chapter: string, from: string, to: string): string {
  const text = read(`docs/spec/${chapter}`);
  const start = text.indexOf(`\n${from}`);
  const end = text.indexOf(`\n${to}`, start + 1);
  if (start < 0 || end < 0) throw new Error(`${chapter}: no section from ${from} to ${to}`);
  return text.slice(start, end);
}

/** `code` spans of a text. */
const spans = (text: string) => [...text.matchAll(/`([^`]+)`/g)].map((m) => m[1]!);

it('the table of errors has every code with its status, and no other', () => {
  const table = new Map<string, number>();
  for (const line of between('05-http-api.md', '### 1.10', '## 2.')
    .split('\n')
    .filter((l) => l.startsWith('| `'))) {
    const [, names = '', shown = ''] = line.split('|');
    const codes = spans(names);
    const statuses = [...shown.matchAll(/\d{3}/g)].map((m) => Number(m[0]));
    for (const [i, code] of codes.entries()) table.set(code, statuses[i] ?? statuses[0]!);
  }
  const coded = Object.entries(ERRORS).map(([code, { status }]) => [code, status] as const);
  expect(Object.fromEntries(table)).toEqual(Object.fromEntries(coded));
});

it('the catalogue of events has every type, and no other', () => {
  const named = spans(between('02-events.md', '## 9. Catalog', '## 10.'));
  const types = named.filter((name) => /^[a-z]+\.[a-z_]+$/.test(name));
  expect([...new Set(types)].sort()).toEqual(Object.keys(CATALOG).sort());
});

it('the list of tables has every table of the database', () => {
  const section = between('01-model.md', '### 11.3', '### 11.4');
  const tables = Object.values({ ...conversation, ...ledger, ...memory, ...people })
    .filter((value) => is(value, SQLiteTable))
    .map((table) => getTableName(table));
  const count = Number(/(\d+) tables:/.exec(section)?.[1]);
  expect(tables.length).toBe(count);
  expect(tables.filter((name) => !new RegExp(`(\\*\\*|\`)${name}(\\*\\*|\`)`).test(section))).toEqual([]);
});

it('the endpoints of the chapter hold every path of the OpenAPI document', () => {
  const { paths } = JSON.parse(read('openapi/openapi.json')) as { paths: Record<string, Record<string, unknown>> };
  const plain = (text: string) => text.replaceAll(/\{[a-z_]+\}/g, '{}');
  const known = new Set(
    spans(between('05-http-api.md', '## 3. Endpoints', '## 4.')).flatMap((span) => {
      const [, method = 'GET', target] = /^(?:(GET|POST|PUT|PATCH|DELETE) )?(\/[^ ?]*)/.exec(plain(span)) ?? [];
      return target === undefined ? [] : [`${method} ${target}`];
    }),
  );
  const served = Object.entries(paths).flatMap(([target, methods]) =>
    Object.keys(methods).map((method) => `${method.toUpperCase()} ${plain(target)}`),
  );
  expect(served.filter((operation) => !known.has(operation))).toEqual([]);
});
