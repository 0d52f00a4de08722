// One connection with what every statement on it has in common: translation, preparation, values.
import { createHash } from 'node:crypto';
import type pg from 'pg';
import type { Answer, Values } from '#store/write/transaction.ts';
import { translateSql } from './dialect.ts';
import { type Integers, placeValues, TYPES, toStorable } from './values.ts';

/** Sends at once; statements of one connection are answered in the order they were sent. */
export type Send = <Row = Record<string, unknown>>(
  sql: string,
  values: Values,
  integers?: Integers,
) => Promise<Answer<Row>>;

const names = new Map<string, string>();

/** Texts are few and stay prepared on the server, by the name of their content. */
function statementName(text: string): string {
  const known = names.get(text);
  if (known !== undefined) return known;
  const name = createHash('sha1').update(text).digest('hex').slice(0, 24);
  names.set(text, name);
  return name;
}

export function createSend(client: Pick<pg.ClientBase, 'query'>): Send {
  return async <Row>(sql: string, values: Values, integers: Integers = 'numbers') => {
    const { text, names: fields } = translateSql(sql);
    const bound = Array.isArray(values) ? values : placeValues(fields, values);
    const result = await client.query({
      name: statementName(text),
      text,
      values: bound.map(toStorable),
      types: TYPES[integers],
    });
    return { rows: result.rows as Row[], changes: result.rowCount ?? 0 };
  };
}
