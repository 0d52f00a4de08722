// Filters over the list of sessions that stand in the address: by door, and by named worker.
import type { MetisClient, Session } from '#client/client.ts';
import { useApi } from '#dashboard/data/api.ts';
import { usePolled } from '#dashboard/data/polled.ts';
import { DOOR_NAMES } from '#dashboard/parts/door.tsx';
import { Menu } from '#dashboard/parts/menu.tsx';
import { type Place, placeWith } from '#dashboard/shell/place.ts';
import { goTo } from '#dashboard/shell/router.ts';

/** Names are few, and new ones seldom. */
const NAMES_MS = 60_000;
const OFFERED = 200;
const ANY = { value: '', label: 'Any' };
const OTHER_DOORS = ['gateway', 'mcp', 'acp'] as const satisfies readonly Session['door'][];

/** What the address asks for; null: whatever it is. */
export interface Sought {
  readonly worker: string | null;
  readonly door: Session['door'] | null;
}

/** The door of the address; what is none is as if it were not there. */
export function doorOf({ query }: Place): Session['door'] | null {
  const text = query.get('door');
  return text !== null && Object.hasOwn(DOOR_NAMES, text) ? (text as Session['door']) : null;
}

/** Which door: those that sessions came by. Where all are the API's own nothing is offered. */
export function DoorFilter({ worker, door }: Sought) {
  const { client } = useApi();
  const { data } = usePolled((signal) => otherDoors(client, signal), 'doors', NAMES_MS);
  const used = new Set<Session['door']>(data ?? []);
  if (used.size > 0 || door !== null) used.add('api');
  if (door !== null) used.add(door);
  if (used.size === 0) return null;
  const names = (Object.keys(DOOR_NAMES) as Session['door'][]).filter((name) => used.has(name));
  return (
    <Menu
      label="Door"
      choices={[ANY, ...names.map((value) => ({ value, label: DOOR_NAMES[value] }))]}
      value={door ?? ''}
      onChoose={(name) => goTo(placeWith('sessions', { worker, door: name === '' ? null : name }))}
    />
  );
}

async function otherDoors(client: MetisClient, signal: AbortSignal): Promise<readonly Session['door'][]> {
  const pages = await Promise.all(OTHER_DOORS.map((door) => client.listSessions({ door, limit: 1 }, { signal })));
  return OTHER_DOORS.filter((_, at) => pages[at]?.sessions.length === 1);
}

/** Which named worker: those that have spent something are offered, and the one of the address. */
export function WorkerFilter({ worker, door }: Sought) {
  const { client } = useApi();
  const { data } = usePolled(
    async (signal) => {
      const report = await client.getCost({ group_by: 'worker_name', from: 'all', limit: OFFERED }, { signal });
      return report.data.flatMap(({ worker_name }) => worker_name ?? []).sort();
    },
    'worker names',
    NAMES_MS,
  );
  const names = [...new Set([...(data ?? []), ...(worker === null ? [] : [worker])])];
  if (names.length === 0) return null;
  return (
    <Menu
      label="Worker"
      choices={[ANY, ...names.map((value) => ({ value, label: value }))]}
      value={worker ?? ''}
      onChoose={(name) => goTo(placeWith('sessions', { worker: name === '' ? null : name, door }))}
    />
  );
}
