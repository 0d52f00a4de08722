// The jobs of `metis demo`: an example workspace each, its task, and the script that plays it without a key (17 §1).
import type { NewSession } from '#client/client.ts';
import type { Checks } from '#protocol/check.ts';
import type { Tier } from '#protocol/scalars.ts';

export interface DemoJob {
  /** Folder below `examples/`. */
  readonly example: string;
  /** The scenario of the scripted models; relative to the package. */
  readonly scenario: string;
  readonly task: string;
  /** One line about the job, shown above the tree. */
  readonly about: string;
  /** Folder of the workspace that the result is written to; null = the answer is all. A job that writes nothing there is not done. */
  readonly results: string | null;
  /** Whether the workspace is a git repository, of which workers get worktrees. */
  readonly isRepository: boolean;
  /** Checks of the server's configuration, which decide whether the result of a worker counts. */
  readonly checks?: Checks;
  session(modelFor: (tier: Tier) => string | null): Omit<NewSession, 'workspace_path'>;
}

/** The planner's own model, where one of tier deep is configured. */
function choosePlanner(modelFor: (tier: Tier) => string | null): Omit<NewSession, 'workspace_path'> {
  const planner = modelFor('deep');
  if (planner === null) return {};
  return { initial_active_model: planner };
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
  isRepository: false,
  session: choosePlanner,
};

export const WORKTREES_JOB: DemoJob = {
  example: 'price-list',
  scenario: 'config/scenarios/price-list.yaml',
  task:
    'The four functions of src/format.mjs return what they are given. Let one worker per function, all four at once and ' +
    'each in a worktree (isolation "worktree"), make its function format its column as test/format.test.mjs expects; ' +
    'the workers of stock and code add their column to FORMATTED. Where a worker was not applied because of a conflict, ' +
    'continue it to resolve that. Then run `node --test` and report in two sentences.',
  about: 'four workers edit one file at the same time, each in a worktree.',
  results: null,
  isRepository: true,
  session: choosePlanner,
};

export const CHECKED_JOB: DemoJob = {
  example: 'loose-texts',
  scenario: 'config/scenarios/loose-texts.yaml',
  task:
    'src/slug.mjs and src/cents.mjs go through their text letter by letter. Let one worker per file, both at once, write ' +
    'its function with regular expressions; nothing a caller sees may change. Both get check "test" and on_fail ' +
    '["retry", "tier:balanced"]. Report in two sentences.',
  about: 'two workers rewrite a function each; the server checks what they claim.',
  results: null,
  isRepository: true,
  checks: {
    test: {
      command: 'node --test',
      timeout_seconds: 60,
      protect: ['test/**', 'package.json'],
      paths: null,
    },
  },
  session: choosePlanner,
};

export const WORKERS_JOB: DemoJob = {
  example: 'pitchdeck-eval',
  scenario: 'config/scenarios/pitchdeck-eval.yaml',
  task: 'Evaluate all decks of the pipeline.',
  about: 'an orchestrator has a locked evaluator judge three pitch decks.',
  results: 'evaluations',
  isRepository: false,
  // Its rules ask before a file is written; the folder is a throw-away copy.
  session: () => ({ worker: 'orchestrator', approval_mode: 'approve_all' }),
};
