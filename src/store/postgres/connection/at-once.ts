// Statements that are one transaction in one round trip: sent together, committed by the end of their sending (16 §3.3).
import type { Duplex } from 'node:stream';
import pg from 'pg';
import { serialize } from 'pg-protocol';
import type { Answer } from '#store/write/transaction.ts';

/** A statement as it is sent. */
export interface Prepared {
  readonly text: string;
  /** Under which it stays prepared on the server. */
  readonly name: string;
  readonly values: readonly unknown[];
  /** Called with the answer after the commit; null = it is not read. */
  readonly take: ((answer: Answer) => undefined) | null;
}

/** Maximum statements: what runs them, and the end, fit one packet. */
export const MAX_AT_ONCE = 100;

/** What the driver's connection has beside its published types. */
interface Wire {
  readonly stream: Duplex;
}
interface Field {
  readonly name: string;
  readonly dataTypeID: number;
}
type Parsers = { getTypeParser(oid: number, format?: 'text' | 'binary'): (text: string) => unknown };

/** The statements that each connection has prepared for this. */
const preparedOn = new WeakMap<Wire, Set<string>>();

/**
 * Runs all of them or none. Rejects with the first error; when the connection breaks, the outcome is unknown.
 *
 * Every value is bound before the first statement runs: a node that stops or is cut off while its values are on the way
 * holds no row. What follows them is a few bytes a statement.
 */
export function runAtOnce(client: pg.PoolClient, statements: readonly Prepared[], types: Parsers): Promise<void> {
  return new Promise((resolve, reject) => {
    const query = new AtOnce(statements, types, (error) => (error === null ? resolve() : reject(error)));
    client.query(query as unknown as pg.Submittable);
  });
}

/** The driver calls its methods as the messages of the server arrive. */
class AtOnce extends pg.Query {
  /** Replaced by the driver, which adds the time limit. */
  callback: (error: Error | null) => void;
  readonly #statements: readonly Prepared[];
  readonly #types: Parsers;
  /** Of the statements whose answer is read, in their order. */
  readonly #described: (readonly Field[])[] = [];
  /** The rows of the statement that runs. */
  #rows: Record<string, unknown>[] = [];
  #answers: (() => void)[] = [];
  #running = 0;
  #readBefore = 0;
  #keepPrepared = () => {};

  constructor(statements: readonly Prepared[], types: Parsers, callback: (error: Error | null) => void) {
    super('at once');
    this.#statements = statements;
    this.#types = types;
    this.callback = callback;
  }

  override submit = (connection: unknown): void => {
    const wire = connection as Wire;
    const known = preparedOn.get(wire) ?? new Set<string>();
    preparedOn.set(wire, known);
    const added = new Set<string>();
    const messages: Buffer[] = [];
    for (const [i, { text, name, values, take }] of this.#statements.entries()) {
      if (!known.has(name) && !added.has(name)) {
        // An earlier attempt may have prepared it and failed later.
        messages.push(serialize.close({ type: 'S', name }), serialize.parse({ name, text }));
        added.add(name);
      }
      const portal = portalName(i);
      messages.push(serialize.bind({ portal, statement: name, values: [...values], valueMapper: encodeValue }));
      if (take !== null) messages.push(serialize.describe({ type: 'P', name: portal }));
    }
    for (const i of this.#statements.keys()) messages.push(EXECUTES[i]!);
    messages.push(serialize.sync());
    // One write: of a hundred, each would be a request of its own to the socket.
    wire.stream.write(Buffer.concat(messages));
    this.#keepPrepared = () => {
      for (const name of added) known.add(name);
    };
  };

  handleRowDescription({ fields }: { readonly fields: readonly Field[] }): void {
    this.#described.push(fields);
  }
  handleDataRow({ fields: texts }: { readonly fields: readonly (string | null)[] }): void {
    if (this.#statements[this.#running]?.take === null) return;
    const fields = this.#described[this.#readBefore] ?? [];
    const row: Record<string, unknown> = {};
    for (const [i, { name, dataTypeID }] of fields.entries()) {
      const text = texts[i] ?? null;
      row[name] = text === null ? null : this.#types.getTypeParser(dataTypeID, 'text')(text);
    }
    this.#rows.push(row);
  }
  handleCommandComplete(): void {
    const take = this.#statements[this.#running]?.take ?? null;
    this.#running += 1;
    if (take === null) return;
    const rows = this.#rows;
    this.#rows = [];
    this.#readBefore += 1;
    this.#answers.push(() => take({ rows, changes: rows.length }));
  }
  handleError(error: Error): void {
    this.callback(error);
  }
  handleReadyForQuery(): void {
    this.#keepPrepared();
    for (const answer of this.#answers) answer();
    this.callback(null);
  }
}

const portalName = (i: number) => `p${i}`;
const EXECUTES = Array.from({ length: MAX_AT_ONCE }, (_, i) => serialize.execute({ portal: portalName(i) }));

/** A value as PostgreSQL reads it; bytes are in the binary form of their type. */
function encodeValue(value: unknown): string | Buffer | null {
  if (value === null || value === undefined) return null;
  if (Buffer.isBuffer(value)) return value;
  if (Array.isArray(value)) return `{${value.map(encodeElement)}}`;
  return String(value);
}

function encodeElement(value: unknown): string {
  if (typeof value === 'number' || typeof value === 'bigint') return String(value);
  return value === null || value === undefined ? 'NULL' : `"${String(value).replaceAll(/["\\]/g, '\\$&')}"`;
}
