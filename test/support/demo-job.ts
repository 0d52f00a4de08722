// The demo's job as a fake provider plays it: the same words, tool calls and token counts as in config/scenarios/auth-refactor.yaml.
import fs from 'node:fs';
import path from 'node:path';
import { parseScenario } from '#models/scripted/scenario.ts';
import { must } from './engine.ts';
import type { FakeAnswer, FakeCall, FakeUsage } from './fake-provider.ts';

const ROOT = path.resolve(import.meta.dirname, '../..');
const SCENARIO = path.join(ROOT, 'config/scenarios/auth-refactor.yaml');
export const JOB_PROVIDERS = ['google', 'github', 'gitlab'] as const;

/** Who asked: the planner, or the worker of one login provider. */
export type JobRole = 'planner' | (typeof JOB_PROVIDERS)[number];

export function jobRole(call: FakeCall): JobRole {
  return JOB_PROVIDERS.find((name) => call.system.includes(`In src/${name}.mjs`)) ?? 'planner';
}

/** How often the model has spoken before this call. */
function callIndex(call: FakeCall): number {
  return (call.body.messages as { role: string }[]).filter((m) => m.role === 'assistant').length + 1;
}

export interface JobStep {
  readonly role: JobRole;
  readonly answer: { readonly text?: string; readonly tool_calls?: readonly { name: string; input: unknown }[] };
  readonly usage: Required<Pick<FakeUsage, 'input' | 'cached' | 'creation' | 'output'>>;
}

/** The scenario's answer to this call. */
export function jobStep(call: FakeCall): JobStep {
  const role = jobRole(call);
  const index = callIndex(call);
  const { rules } = must(parseScenario(fs.readFileSync(SCENARIO, 'utf8'), SCENARIO));
  const rule = rules.find(
    ({ match }) =>
      match.role === (role === 'planner' ? 'planner' : 'worker') &&
      match.call === index &&
      call.system.includes(match.user_contains ?? '') &&
      call.results.join('\n').includes(match.tool_result_contains ?? ''),
  );
  if (rule === undefined) throw new Error(`the job has no answer to call ${index} of ${role}`);
  const { text, tool_calls, usage } = rule.responses[0]!;
  return {
    role,
    answer: { ...(text === undefined ? {} : { text }), ...(tool_calls === undefined ? {} : { tool_calls }) },
    usage: {
      input: usage?.input_tokens ?? 0,
      cached: usage?.cached_input_tokens ?? 0,
      creation: usage?.cache_creation_input_tokens ?? 0,
      output: usage?.output_tokens ?? 0,
    },
  };
}

/** Plays the job. The workers' first calls wait for each other: without three at once the job never ends. */
export function playJob(steps: JobStep[] = []): (call: FakeCall) => Promise<FakeAnswer> {
  let waiting = JOB_PROVIDERS.length;
  let release: () => void = () => {};
  const together = new Promise<void>((resolve) => {
    release = resolve;
  });
  return async (call) => {
    const step = jobStep(call);
    steps.push(step);
    if (step.role !== 'planner' && callIndex(call) === 1) {
      waiting -= 1;
      if (waiting === 0) release();
      await together;
    }
    return { ...step.answer, usage: step.usage, delta: 7 };
  };
}

/** A copy of the example workspace in `folder`. */
export function copyExample(folder: string): string {
  const workspace = path.join(folder, 'auth-refactor');
  fs.cpSync(path.join(ROOT, 'examples/auth-refactor'), workspace, { recursive: true });
  return workspace;
}
