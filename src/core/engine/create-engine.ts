// Composes the engine: its ports, its state in memory, and the worker spawner that the lower rooms take.
import { createWorkerPort } from './delegation/worker-spawner.ts';
import { createBackgroundGroups } from './state/background-groups.ts';
import { createSessionLocks, createTurnPlaces } from './state/concurrency.ts';
import { createOutsideRuns } from './state/delegation-runs.ts';
import type { Engine, EngineDeps } from './state/engine.ts';
import { createFileLedger } from './state/file-ledger.ts';
import { createGatewayMemory } from './state/gateway-memory.ts';
import { createBudget, createKnownPrompts, createOpenApprovals, createRouteMemory } from './state/memory.ts';
import { createPeople } from './state/people.ts';

export type { Engine } from './state/engine.ts';

export function createEngine(deps: EngineDeps): Engine {
  const engine: Engine = {
    ...deps,
    locks: createSessionLocks(deps.log),
    places: createTurnPlaces(deps.config.cluster.max_turns, deps.clock),
    approvals: createOpenApprovals(),
    routes: createRouteMemory(),
    budget: createBudget(),
    prompts: createKnownPrompts(),
    gateway: createGatewayMemory(),
    starts: new Map(),
    workers: createWorkerPort(() => engine),
    applyGroups: new Map(),
    files: createFileLedger(),
    outside: createOutsideRuns(deps.config.tools.max_concurrent_per_session),
    background: createBackgroundGroups(),
    people: createPeople({ ...deps, several: deps.trees.several }),
    ending: new Set(),
    crashed: new Set(),
    unpriced: new Set(),
    draining: { value: false },
  };
  return engine;
}
