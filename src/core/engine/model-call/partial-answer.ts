// The closing of a model call whose stream was left behind: made from the deltas that were seen (04 §9, 01 §4.4).

import { estimateRequest } from '#core/policy/context/estimate.ts';
import { type ContentBlock, textBlock } from '#protocol/message.ts';
import type { CanonicalRequest } from '#protocol/model-request.ts';
import type { MessageComplete } from '#protocol/model-stream.ts';
import type { Engine } from '../state/engine.ts';
import { estimateAnswer } from './believed-usage.ts';
import type { Call } from './call.ts';

/** Null when nothing was streamed. Counts are estimates, since the provider's own never came. */
export function partialAnswer(engine: Engine, call: Call, request: CanonicalRequest): MessageComplete | null {
  if (call.heard.message_id === null) return null;
  const content = call.purpose === 'turn' ? streamed(engine, call) : [textBlock(call.heard.unshown)];
  return {
    type: 'message.complete',
    stop_reason: 'cancelled',
    raw_stop_reason: null,
    final_content: content,
    usage: {
      input_tokens: estimateRequest(request),
      cached_input_tokens: 0,
      cache_creation_input_tokens: 0,
      cache_creation_1h_input_tokens: 0,
      output_tokens: estimateAnswer(content),
      reasoning_tokens: 0,
      usage_estimated: true,
    },
    latency_ms: 0,
    retry_count: 0,
    served_model: null,
    response_id: null,
    provider_raw: null,
  };
}

function streamed(engine: Engine, { run, heard }: Call): readonly ContentBlock[] {
  const open = engine.bus.openMessages((id) => id === run.session.id);
  const start = open.find((t) => t.delta.type === 'message.start' && t.delta.payload.message_id === heard.message_id);
  return start?.delta.type === 'message.start' ? start.delta.payload.content : [];
}
