// The fragments that SQLite and PostgreSQL spell differently in shared statements.
import { expect, it } from 'vitest';
import { type Dialect, expandFragments } from '#store/schema/dialect.ts';

const dialect: Dialect = {
  index: (name) => `USE ${name}`,
  no_index: () => '+',
  join_in_order: () => 'THEN',
  in_list: () => 'AMONG ?',
  text_at: (column, ...path) => [column, ...path].join('->'),
  json_field: (column, field) => `${column}->${field}`,
  greatest: () => 'most',
  least: () => 'few',
  keep_rows: () => 'KEEP',
  lock_rows: () => 'LOCK',
  first_id: () => 'ID ?',
};

it('a fragment is spelled by the dialect, with the values in its parentheses', () => {
  const sql =
    'SELECT {json_field(e.payload_json, model)}, {greatest}(0, ?) FROM t {index(t_open)} WHERE {no_index}id {in_list}';
  expect(expandFragments(dialect, sql)).toBe(
    'SELECT e.payload_json->model, most(0, ?) FROM t USE t_open WHERE +id AMONG ?',
  );
});

it('JSON texts in a statement are no fragments', () => {
  const sql = `SELECT '{}', '{"a":1}', '{ index }' FROM t`;
  expect(expandFragments(dialect, sql)).toBe(sql);
});

it('a fragment that no dialect has is refused with its name', () => {
  expect(() => expandFragments(dialect, 'SELECT {now}')).toThrow('no dialect has the fragment now');
  expect(() => expandFragments(dialect, 'SELECT {toString}')).toThrow('no dialect has the fragment toString');
});
