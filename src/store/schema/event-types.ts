// The numbers that event types are stored as. The database hands them out, so that a new type needs no migration.
import { EVENT_TYPES, type EventType } from '#protocol/event.ts';

export type TypeNumbers = ReadonlyMap<string, number>;

export interface TypeRow {
  readonly type: string;
  readonly number: number;
}

export const LIST_EVENT_TYPES = 'SELECT type, number FROM event_types';
/** Adds nothing where another process added the type, or took the number, at this moment. */
export const ADD_EVENT_TYPE = `INSERT INTO event_types (number, type)
  SELECT max(number) + 1, CAST(? AS text) FROM event_types WHERE TRUE ON CONFLICT DO NOTHING`;

/** The types of the catalogue that have no number yet. */
export function findMissingTypes(numbers: TypeNumbers): readonly EventType[] {
  return EVENT_TYPES.filter((type) => !numbers.has(type));
}

export function toTypeNumbers(rows: readonly TypeRow[]): TypeNumbers {
  return new Map(rows.map(({ type, number }) => [type, number]));
}
