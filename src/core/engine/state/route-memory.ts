// What routing remembers between turns: provider availability and the policy files. In memory, healthy after a restart.
import { type Availability, emptyAvailability } from '#core/policy/registry/availability.ts';
import { type PolicyLayer, UNREAD } from '#core/policy/routing/policy-layers.ts';

export interface RouteMemory {
  availability: Availability;
  /** The global file, one for all workspaces. */
  global: PolicyLayer;
  /** Each workspace's own file, the one used last at the end. */
  readonly workspaces: Map<string, PolicyLayer>;
}

/** A workspace beyond it is read anew when it comes back, its last good parse forgotten. */
const MAX_WORKSPACES = 1000;

export function createRouteMemory(): RouteMemory {
  return { availability: emptyAvailability(), global: UNREAD, workspaces: new Map() };
}

/** A copy to decide on without a trace. */
export function forkMemory(memory: RouteMemory): RouteMemory {
  return { ...memory, workspaces: new Map(memory.workspaces) };
}

export function rememberWorkspace({ workspaces }: RouteMemory, path: string, layer: PolicyLayer): void {
  workspaces.delete(path);
  workspaces.set(path, layer);
  if (workspaces.size > MAX_WORKSPACES) workspaces.delete(workspaces.keys().next().value!);
}
