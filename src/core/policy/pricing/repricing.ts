// Sizes of prompts that share their rates, so that calls can be priced together (08 §4.2, §7).

/** Prompt sizes above which the rates of some model of the table change, ascending, each once (08 §4.2). */
export function promptSteps(
  models: Readonly<Record<string, { readonly long_context: readonly { readonly above_prompt_tokens: number }[] }>>,
): readonly number[] {
  const steps = Object.values(models).flatMap((entry) => entry.long_context.map((step) => step.above_prompt_tokens));
  return [...new Set(steps)].sort((a, b) => a - b);
}

/** A prompt size for which every model has the rates of all calls that lie above `passed` of the steps. */
export function promptAbove(steps: readonly number[], passed: number): number {
  return passed === 0 ? 0 : steps[passed - 1]! + 1;
}
