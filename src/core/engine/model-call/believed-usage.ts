// The counts of a call as they are booked: what cannot be true is estimated, or a limit would be counted with a lie (08 §4.1).

import { estimateRequest } from '#core/policy/context/estimate.ts';
import { credibleUsage } from '#core/policy/pricing/credible-usage.ts';
import type { ContentBlock } from '#protocol/message.ts';
import type { CanonicalRequest } from '#protocol/model-request.ts';
import type { TokenUsage } from '#protocol/usage.ts';
import type { Engine } from '../state/engine.ts';

/** @param content what the call answered, as far as it came */
export function believedUsage(
  engine: Engine,
  request: CanonicalRequest,
  reported: TokenUsage,
  content: readonly ContentBlock[],
): TokenUsage {
  const { usage, faults } = credibleUsage(reported, request.model.capabilities, {
    input: () => estimateRequest(request),
    output: () => estimateAnswer(content),
  });
  if (faults.length > 0)
    engine.log.warn(
      {
        session_id: request.caller.session_id,
        turn_id: request.caller.turn_id,
        model: request.model.id,
        request_id: request.request_id,
        faults,
      },
      'the provider reports impossible counts; they are estimated',
    );
  return usage;
}

/** Tokens of an answer by its characters, a quarter each. */
export function estimateAnswer(content: readonly ContentBlock[]): number {
  let total = 0;
  for (const block of content) {
    if (block.type === 'text' || block.type === 'thinking') total += block.text.length;
    else if (block.type === 'tool_use') total += block.name.length + JSON.stringify(block.input).length;
  }
  return Math.ceil(total / 4);
}
