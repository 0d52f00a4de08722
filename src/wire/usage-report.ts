// Token counts as a provider reported them, as far as they can be trusted (11.5, 11.6).

/** Null = not reported. */
export interface UsageReport {
  input: number | null;
  cached: number | null;
  creation: number | null;
  creation1h: number | null;
  output: number | null;
  reasoning: number | null;
  /** The output count is a preliminary one: the provider had not finished when it gave it. */
  early: boolean;
}

export function noUsage(): UsageReport {
  return { input: null, cached: null, creation: null, creation1h: null, output: null, reasoning: null, early: false };
}

/** A count that can be trusted: a whole number from 0. Anything else counts as not reported. */
export function count(value: unknown): number | null {
  return typeof value === 'number' && Number.isSafeInteger(value) && value >= 0 ? value : null;
}
