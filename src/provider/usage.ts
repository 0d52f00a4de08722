// Token counts as a provider reported them, completed by estimates where it reported none (11.3 rule 10, 11.6).
import type { TokenUsage } from '../domain/usage.ts';
import { estimateRequest } from '../policy/context/estimate.ts';
import { codePoints } from '../policy/context/message-size.ts';
import type { CanonicalRequest } from '../ports/provider.ts';
import type { Slot } from './assembly.ts';

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

export function hasUsage(report: UsageReport): boolean {
  return hasInput(report) || report.output !== null;
}

function hasInput(report: UsageReport): boolean {
  return report.input !== null || report.cached !== null || report.creation !== null;
}

/** A count that can be trusted: a whole number from 0. Anything else counts as not reported. */
export function count(value: unknown): number | null {
  return typeof value === 'number' && Number.isSafeInteger(value) && value >= 0 ? value : null;
}

/** The counts of a call whose content is `slots`. */
export function settleUsage(report: UsageReport, request: CanonicalRequest, slots: readonly Slot[]): TokenUsage {
  const inputKnown = hasInput(report);
  const outputKnown = report.output !== null && !report.early;
  return {
    input_tokens: inputKnown ? (report.input ?? 0) : estimateRequest(request),
    cached_input_tokens: report.cached ?? 0,
    cache_creation_input_tokens: report.creation ?? 0,
    cache_creation_1h_input_tokens: Math.min(report.creation1h ?? 0, report.creation ?? 0),
    output_tokens: outputKnown ? report.output! : Math.max(report.output ?? 0, estimateOutput(slots)),
    reasoning_tokens: report.reasoning ?? 0,
    usage_estimated: !inputKnown || !outputKnown,
  };
}

/** `ceil(code points / 4)` of everything received, tool names included. */
export function estimateOutput(slots: readonly Slot[]): number {
  let size = 0;
  for (const slot of slots) size += codePoints(slot.name) + codePoints(slot.text);
  return Math.ceil(size / 4);
}
