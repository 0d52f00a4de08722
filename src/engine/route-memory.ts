// What routing remembers between turns: provider availability and the parsed policy files. In memory, healthy after a restart.
import { type Availability, emptyAvailability } from '../policy/routing/availability.ts';
import { emptyLayers, type PolicyLayers } from '../policy/routing/policy-layers.ts';

export interface RouteMemory {
  availability: Availability;
  /** The global routing file, parsed once for all workspaces. */
  readonly layers: Map<string, PolicyLayers>;
}

export function createRouteMemory(): RouteMemory {
  return { availability: emptyAvailability(), layers: new Map() };
}

/** The layers in force for a workspace, as last read. */
export function layersOf(memory: RouteMemory, workspace: string): PolicyLayers {
  return memory.layers.get(workspace) ?? emptyLayers();
}
