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

/** One of several samplings inside a call. */
export interface UsageRound {
  /** Null = the model of the call. */
  readonly model: string | null;
  readonly usage: Readonly<Omit<UsageReport, 'early'>>;
}

export function noUsage(): UsageReport {
  return { input: null, cached: null, creation: null, creation1h: null, output: null, reasoning: null, early: false };
}

/** A reported count: null = not reported, `NaN` = reported, and no whole number from 0. */
export function count(value: unknown): number | null {
  if (value == null) return null;
  return typeof value === 'number' && Number.isSafeInteger(value) && value >= 0 ? value : Number.NaN;
}
