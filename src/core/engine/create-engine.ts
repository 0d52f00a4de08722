// The engine put together: its ports, what it keeps in memory, and the workers that its lower rooms are handed.
import { createWorkers } from './delegation/worker-spawner.ts';
import type { Engine, EngineDeps } from './state/engine.ts';
import { createFileLedger } from './state/file-ledger.ts';
import { createGatewayMemory } from './state/gateway-memory.ts';
import { createKnownPrompts } from './state/known-prompts.ts';
import { createOpenApprovals } from './state/open-approvals.ts';
import { createOutsideRuns } from './state/outside.ts';
import { createBudget } from './state/reservations.ts';
import { createRouteMemory } from './state/route-memory.ts';
import { createSessionLocks } from './state/session-lock.ts';
import { createTurnPlaces } from './state/turn-places.ts';

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
    workers: createWorkers(() => engine),
    files: createFileLedger(),
    outside: createOutsideRuns(deps.config.tools.max_concurrent_per_session),
    ending: new Set(),
    crashed: new Set(),
    unpriced: new Set(),
    draining: { value: false },
  };
  return engine;
}
