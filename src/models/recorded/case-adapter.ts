// A provider whose answers are those of a case: no model, no network (21 §3).
import { AdapterError, type ProviderAdapter } from '#core/ports/provider.ts';
import type { IdGenerator } from '#protocol/ids.ts';
import type { ContentBlock } from '#protocol/message.ts';
import type { CanonicalRequest, MessageComplete, StreamEvent } from '#protocol/model-call.ts';
import type { ReportedBill } from '#protocol/usage.ts';
import type { CaseCall } from '#protocol/what-if/case.ts';

export type CaseOutcome = Pick<CaseCall, 'answer' | 'error'>;

/** @param take the outcome for a request; null = the case has none */
export function createCaseAdapter(
  ids: IdGenerator,
  take: (request: CanonicalRequest) => CaseOutcome | null,
): ProviderAdapter {
  return {
    name: 'case',
    stream: async (request, _, deliver) => {
      for (const event of play(ids, request, take(request))) deliver(event);
    },
    close: async () => {},
  };
}

function* play(
  ids: IdGenerator,
  { request_id, model }: CanonicalRequest,
  outcome: CaseOutcome | null,
): Generator<StreamEvent, void, undefined> {
  if (outcome === null)
    throw new AdapterError('the case has no answer for this request', {
      error_class: 'invalid_request',
      error_detail: 'case_no_answer',
      request_id,
    });
  const { answer, error } = outcome;
  if (answer !== null) {
    const message_id = ids.message();
    const content = answer.content.map((block) =>
      block.type === 'tool_use' ? { ...block, id: ids.toolUse() } : block,
    );
    yield { type: 'message.start', message_id, model: model.id };
    for (const [at, block] of content.entries())
      for (const event of toEvents(block, at)) yield { message_id, ...event };
    yield { message_id, ...composeEnd(answer, content) };
  }
  if (error !== null) {
    const { message, ...fields } = error;
    throw new AdapterError(message, { ...fields, request_id });
  }
}

type Deltas = Exclude<StreamEvent, { readonly type: 'message.start' | 'message.complete' }>;
type WithoutMessage<T> = T extends unknown ? Omit<T, 'message_id'> : never;

function toEvents(block: ContentBlock, content_block_index: number): WithoutMessage<Deltas>[] {
  if (block.type === 'text') return [{ type: 'text.delta', content_block_index, text: block.text }];
  if (block.type === 'thinking')
    return [{ type: 'thinking.delta', content_block_index, text: block.text, signature: block.signature }];
  if (block.type !== 'tool_use') return [];
  const at = { content_block_index, tool_use_id: block.id };
  return [
    { type: 'tool.use_start', ...at, tool_name: block.name, provider_tool_id: null },
    { type: 'tool.use_input_delta', ...at, partial_json: JSON.stringify(block.input) },
    { type: 'tool.use_end', ...at, final_input: block.input, input_error: null },
  ];
}

function composeEnd(answer: NonNullable<CaseCall['answer']>, final_content: readonly ContentBlock[]): MessageComplete {
  const { stop_reason, usage, bill, served_model } = answer;
  return {
    type: 'message.complete',
    stop_reason,
    raw_stop_reason: null,
    final_content,
    usage,
    bill: bill && ({ ...bill, uses: new Map(Object.entries(bill.uses)) } as unknown as ReportedBill),
    latency_ms: 0,
    retry_count: 0,
    served_model,
    response_id: null,
    provider_raw: null,
  };
}
