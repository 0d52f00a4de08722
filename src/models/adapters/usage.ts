// The counts of a model call: as the provider reported them, completed by estimates where it reported none (11.3 rule 10, 11.6).

import { estimateRequest } from '#core/policy/context/estimate.ts';
import { codePoints } from '#core/policy/context/message-size.ts';
import type { CanonicalRequest } from '#protocol/model-request.ts';
import type { TokenUsage } from '#protocol/usage.ts';
import type { Slot } from '../wire/assembly.ts';
import type { UsageReport } from '../wire/usage-report.ts';

export function hasUsage(report: UsageReport): boolean {
  return hasInput(report) || report.output !== null;
}

function hasInput(report: UsageReport): boolean {
  return report.input !== null || report.cached !== null || report.creation !== null;
}

/** The counts of a model call whose content is `slots`. */
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
