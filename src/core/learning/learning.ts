// Routing that learns: the recommender that slot 4 asks, and the loop that feeds it (chapter 12). Observers, both.
import { recommend } from '../policy/learning/recommend.ts';
import type { Recommender } from '../ports/recommender.ts';
import { type LearningLoop, type LoopDeps, startLoop } from './loop.ts';
import { createPatternMemory } from './memory.ts';

/** Outcomes that are kept of one workspace. */
const MAX_OUTCOMES = 10_000;
/** What other nodes learned of a workspace is known here after so long. */
const READ_AGAIN_MS = 30_000;

export interface LearningDeps extends Omit<LoopDeps, 'maxOutcomes'> {
  readonly maxOutcomes?: number;
  /** Whether the registry of today has the model. */
  readonly hasModel: (id: string) => boolean;
}

export interface Learning {
  readonly recommender: Recommender;
  /** To be called once, when the journal takes commits. */
  start(): LearningLoop;
}

export function createLearning(deps: LearningDeps): Learning {
  const { store, clock, alone } = deps;
  const memory = createPatternMemory(store, alone ? null : { clock, ms: READ_AGAIN_MS });
  return {
    recommender: {
      recommend: async ({ workspace_path, fingerprint, config }) => {
        const patterns = memory.held(workspace_path) ?? (await memory.of(workspace_path));
        return recommend(patterns.shape(fingerprint), patterns.patterns(), config, deps.hasModel);
      },
      forget: memory.forget,
    },
    start: () => startLoop({ maxOutcomes: MAX_OUTCOMES, ...deps }, memory),
  };
}
