// Reads over one connection or over any of a pool.
import type { Send } from './client.ts';

export interface Reads {
  all<Row>(sql: string, ...values: unknown[]): Promise<readonly Row[]>;
  get<Row>(sql: string, ...values: unknown[]): Promise<Row | undefined>;
  /** Integers as bigint, likewise below. */
  allExact<Row>(sql: string, ...values: unknown[]): Promise<readonly Row[]>;
  getExact<Row>(sql: string, ...values: unknown[]): Promise<Row | undefined>;
}

export function readsOver(send: Send): Reads {
  const all = async <Row>(sql: string, ...values: unknown[]) => (await send<Row>(sql, values)).rows;
  const allExact = async <Row>(sql: string, ...values: unknown[]) => (await send<Row>(sql, values, 'exact')).rows;
  return {
    all,
    allExact,
    get: async <Row>(sql: string, ...values: unknown[]) => (await all<Row>(sql, ...values))[0],
    getExact: async <Row>(sql: string, ...values: unknown[]) => (await allExact<Row>(sql, ...values))[0],
  };
}
