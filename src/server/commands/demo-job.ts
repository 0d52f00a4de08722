// The two jobs of `metis demo`: what is done, on which example, by what kind of session (17 §1).
import type { NewSession } from '#client/client.ts';
import type { Tier } from '#protocol/scalars.ts';

export interface DemoJob {
  /** Folder below `examples/`. */
  readonly example: string;
  /** What scripted models say; relative to the package. */
  readonly scenario: string;
  readonly task: string;
  /** For whoever watches. */
  readonly about: string;
  /** Folder of the workspace that the result is written to; null = the answer is all. A job that writes nothing there is not done. */
  readonly results: string | null;
  session(modelFor: (tier: Tier) => string | null): Omit<NewSession, 'workspace_path'>;
}

export const PLANNER_JOB: DemoJob = {
  example: 'auth-refactor',
  scenario: 'config/scenarios/auth-refactor.yaml',
  task:
    'The login providers in src/ (google, github, gitlab) repeat the same checks of their input. Write src/checks.mjs with ' +
    'one function for these checks, then let one worker per provider, all three at once, make its file call it. ' +
    'Nothing a caller sees may change. Then run `node --test` and report in two sentences.',
  about: 'three login providers repeat the same checks; put them into one place.',
  results: null,
  session: (modelFor) => {
    const planner = modelFor('deep');
    return planner === null ? {} : { initial_active_model: planner };
  },
};

export const WORKERS_JOB: DemoJob = {
  example: 'pitchdeck-eval',
  scenario: 'config/scenarios/pitchdeck-eval.yaml',
  task: 'Evaluate all decks of the pipeline.',
  about: 'an orchestrator has a locked evaluator judge three pitch decks.',
  results: 'evaluations',
  // Its rules ask before a file is written; the folder is a throw-away copy.
  session: () => ({ worker: 'orchestrator', approval_mode: 'approve_all' }),
};
