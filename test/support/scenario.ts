// Short forms for scenarios of the scripted provider, so that a test reads as what the models say.

export interface Call {
  readonly name: string;
  readonly input: unknown;
}
type Respond = Readonly<Record<string, unknown>>;

export const delegate = (task: string, rest: Readonly<Record<string, unknown>> = {}): Call => ({
  name: 'delegate',
  input: { tier: 'fast', task, ...rest },
});
export const call = (name: string, input: unknown): Call => ({ name, input });

/** The planner's answers to its first, second, ... call of turn 1. */
export function planner(...responses: readonly Respond[]) {
  return responses.map((respond, i) => ({ match: { role: 'planner', turn: 1, call: i + 1 }, respond }));
}
/** The answers of the worker whose task contains `task`, call by call. */
export function worker(task: string, ...responses: readonly Respond[]) {
  return responses.map((respond, i) => ({ match: { role: 'worker', user_contains: task, call: i + 1 }, respond }));
}
export const scenario = (...rules: readonly (readonly unknown[])[]) => ({ version: 1, rules: rules.flat() });
