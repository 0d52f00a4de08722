// The delegation policy of `metis benchmark`: which model plans, and which one works (17 §6).

const POLICY = /^(.+)-planner-(.+)-worker$/;

/** Model ids or aliases; null = what the configuration says. */
export interface Policy {
  readonly planner: string | null;
  readonly worker: string | null;
}

/** @param text like `sonnet-planner-haiku-worker`; null = not a policy */
export function parsePolicy(text: string): { readonly planner: string; readonly worker: string } | null {
  const [, planner, worker] = POLICY.exec(text) ?? [];
  return planner === undefined || worker === undefined ? null : { planner, worker };
}
