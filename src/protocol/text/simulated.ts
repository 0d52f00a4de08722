// Models that a script answers for: what marks their calls (08 §5).

/** Provider of the models that a script answers for. */
export const SIMULATED_PROVIDER = 'scripted';

/** Whether a script answers: its tokens are invented, and its money is at example prices (08 §5). */
export function isSimulated(modelId: string): boolean {
  return modelId.startsWith(`${SIMULATED_PROVIDER}:`);
}
