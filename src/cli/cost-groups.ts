// What `metis cost` groups by, under the names that people read: one list for its help and its refusal (17 §2).
import type { Dimension } from '#protocol/analytics.ts';

/** Dimensions that have another name in the API than in everything that people read. */
export const API_NAMES = { source: 'door' } as const satisfies Readonly<Record<string, Dimension>>;

export const COST_GROUPS = [
  'model',
  'provider',
  'effort',
  'session',
  'parent_session',
  'root_session',
  'is_worker',
  'worker_name',
  'delegation_tier',
  'workspace',
  'source',
  'caller',
  'owner',
  'cost_kind',
  'day',
  'hour',
] as const satisfies readonly (Dimension | keyof typeof API_NAMES)[];

/** Below the help of the command. */
export const COST_GROUPS_HELP = `
Groups: ${COST_GROUPS.slice(0, 6).join(', ')},
${COST_GROUPS.slice(6, 12).join(', ')},
${COST_GROUPS.slice(12).join(', ')}.
Separate two by a comma; none gives the total alone.
With --verified: model, tier, worker_name or check.`;

/** The dimension of the API; null where there is none of that name. */
export function resolveGroup(name: string): string | null {
  if (Object.hasOwn(API_NAMES, name)) return API_NAMES[name as keyof typeof API_NAMES];
  const known: readonly string[] = [...COST_GROUPS, ...Object.values(API_NAMES), 'none'];
  return known.includes(name) ? name : null;
}
