// A payload as it is stored: a routing decision without its nulls, which are more than half of it (02 §9.3).
import { RouteDecidedSchema } from '../../domain/event/routing.ts';
import type { EventType, PayloadOf } from '../../domain/event.ts';
import { PolicyEvaluationSchema } from '../../domain/route.ts';

// In a string of a JSON text every quote has a backslash before it: only a member can look like this.
const NULL_MEMBER = /,"[a-z_]+":null/g;

/** What the text of a payload is stored as: 1.7 kB as 0.7, in a row that every turn writes. */
export function storedPayload(type: EventType, json: string): string {
  return type === 'route.decided' ? json.replace(NULL_MEMBER, '') : json;
}

const nulls = (keys: object) => Object.fromEntries(Object.keys(keys).map((key) => [key, null]));
const EMPTY_ROUTE = nulls(RouteDecidedSchema.shape);
const EMPTY_EVALUATION = nulls(PolicyEvaluationSchema.shape);

/** A stored decision with every member that it has on the wire; one that was stored whole stays as it is. */
export function wholeRoute(stored: Partial<PayloadOf<'route.decided'>>): PayloadOf<'route.decided'> {
  const chain = stored.chain?.map((entry) => ({ ...EMPTY_EVALUATION, ...entry })) ?? [];
  return { ...EMPTY_ROUTE, ...stored, chain } as PayloadOf<'route.decided'>;
}
