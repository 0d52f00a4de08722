// What was said to models and by them, kept for the spans of their calls where it is asked for, scrubbed and cut (18 §2).
import type { Attributes } from '@opentelemetry/api';
import type { ProviderAdapter, Providers } from '#core/ports/provider.ts';
import type { ContentBlock } from '#protocol/message.ts';
import type { CanonicalRequest } from '#protocol/model-request.ts';
import type { MessageComplete, StreamEvent } from '#protocol/model-stream.ts';
import { scrub, scrubSecrets } from '#protocol/text/scrub.ts';

/** Of a request: the newest. */
const MAX_PARTS = 40;
/** Characters of either end of long instructions. */
const END = 1000;
/** A call that never settles would be kept for ever. */
const MAX_CALLS = 1000;

export interface Content {
  /** The same adapters, whose calls are listened to. */
  wrapProviders(providers: Providers): Providers;
  /** What was said in this call, once. */
  take(requestId: string): Attributes | undefined;
}

type Part = Readonly<Record<string, unknown>>;

/** @param secrets exact values that are never kept */
export function createContent(secrets: readonly string[]): Content {
  const calls = new Map<string, Attributes>();
  const text = (value: string) => scrub(value, { secrets });

  async function* streamAndRecord(adapter: ProviderAdapter, request: CanonicalRequest, signal: AbortSignal) {
    const { request_id } = request;
    for (const oldest of calls.keys()) {
      if (calls.size < MAX_CALLS) break;
      calls.delete(oldest);
    }
    calls.set(request_id, describeRequest(request));
    for await (const event of adapter.stream(request, signal)) {
      const kept = event.type === 'message.complete' ? calls.get(request_id) : undefined;
      if (kept) kept['gen_ai.output.messages'] = describeAnswer(event as MessageComplete);
      yield event as StreamEvent;
    }
  }

  function describeRequest({ messages, system_prompt, system_prompt_volatile }: CanonicalRequest): Attributes {
    const system = [system_prompt, system_prompt_volatile].flatMap((one) => (one === null ? [] : bothEnds(one)));
    const shown: { role: string; parts: Part[] }[] = [];
    let left = MAX_PARTS;
    for (let i = messages.length - 1; i >= 0 && left > 0; i--) {
      const { role, content } = messages[i]!;
      const newest = content.slice(-left);
      left -= newest.length;
      shown.unshift({ role, parts: newest.flatMap(toParts) });
    }
    return {
      'gen_ai.input.messages': JSON.stringify(shown),
      ...(system.length === 0 ? {} : { 'gen_ai.system_instructions': JSON.stringify(system) }),
    };
  }

  /** A worker's task stands at the end of its instructions. */
  function bothEnds(value: string): Part[] {
    // Whole before it is cut: half a secret would not be known any more.
    const clean = scrubSecrets(value, secrets);
    const ends = clean.length <= 2 * END ? [clean] : [clean.slice(0, END), clean.slice(-END)];
    return ends.map((one) => ({ type: 'text', content: text(one) }));
  }

  function describeAnswer({ final_content, stop_reason }: MessageComplete): string {
    const parts = final_content.slice(0, MAX_PARTS).flatMap(toParts);
    return JSON.stringify([{ role: 'assistant', parts, finish_reason: stop_reason }]);
  }

  /** A block under the names of the conventions; bytes are left out. */
  function toParts(block: ContentBlock): Part[] {
    switch (block.type) {
      case 'text':
        return [{ type: 'text', content: text(block.text) }];
      case 'thinking':
        return [{ type: 'reasoning', content: text(block.text) }];
      case 'tool_use':
        return [
          { type: 'tool_call', id: block.id, name: block.name, arguments: text(JSON.stringify(block.input) ?? '') },
        ];
      case 'tool_result': {
        const said = block.content.map((one) => (one.type === 'text' ? one.text : `[${one.media_type}]`)).join('\n');
        return [{ type: 'tool_call_response', id: block.tool_use_id, response: text(said) }];
      }
      case 'image':
      case 'document':
        return [{ type: 'blob', modality: block.type, mime_type: block.media_type }];
      case 'redacted_thinking':
        return [];
    }
  }

  return {
    wrapProviders: (providers) =>
      new Map(
        [...providers].map(([id, adapter]) => [
          id,
          { ...adapter, stream: (request, signal) => streamAndRecord(adapter, request, signal) },
        ]),
      ),
    take(requestId) {
      const kept = calls.get(requestId);
      calls.delete(requestId);
      return kept;
    },
  };
}
