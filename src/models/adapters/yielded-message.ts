// Collects the yielded part of a message: its content, and its token counts at the end (11.3 rules 4, 5, 7, 10).

import { codePoints } from '#core/policy/context/message-size.ts';
import { estimateRequest } from '#core/policy/context/token-estimate.ts';
import type { ContentBlock } from '#protocol/message.ts';
import type { CanonicalRequest, StreamEvent } from '#protocol/model-call.ts';
import type { TokenUsage } from '#protocol/usage.ts';
import type { AssembledEvent, Slot, UsageReport } from '../wire/assembly.ts';

interface OpenTool {
  readonly index: number;
  readonly id: Extract<StreamEvent, { type: 'tool.use_start' }>['tool_use_id'];
  readonly name: string;
  json: string;
}

export interface Fold {
  /** Whether any event was yielded; after that no retry is possible. */
  started: boolean;
  readonly content: ContentBlock[];
  tool: OpenTool | null;
}

export function createFold(): Fold {
  return { started: false, content: [], tool: null };
}

/** Adds one event in the order of the stream. */
export function applyEvent(fold: Fold, event: AssembledEvent): void {
  const { content } = fold;
  switch (event.type) {
    case 'message.start':
      fold.started = true;
      return;
    case 'text.delta': {
      const block = content[event.content_block_index];
      if (block?.type === 'text') block.text += event.text;
      else content.push({ type: 'text', text: event.text });
      return;
    }
    case 'thinking.delta': {
      const block = content[event.content_block_index];
      if (block?.type !== 'thinking') content.push({ type: 'thinking', text: event.text, signature: event.signature });
      else {
        block.text += event.text;
        block.signature = event.signature ?? block.signature;
      }
      return;
    }
    case 'redacted':
      content.push({ type: 'redacted_thinking', data: event.data });
      return;
    case 'tool.use_start':
      fold.tool = { index: event.content_block_index, id: event.tool_use_id, name: event.tool_name, json: '' };
      return;
    case 'tool.use_input_delta':
      if (fold.tool !== null) fold.tool.json += event.partial_json;
      return;
    case 'tool.use_end':
      if (fold.tool !== null)
        content.push({ type: 'tool_use', id: fold.tool.id, name: fold.tool.name, input: event.final_input });
      fold.tool = null;
      return;
    case 'message.complete':
      return;
  }
}

// Token counts of a model call: the provider's report, completed by estimates (11.3 rule 10, 11.6).

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
    output_tokens: outputKnown ? report.output! : Math.max(report.output ?? 0, estimateOutput(slots, request)),
    reasoning_tokens: report.reasoning ?? 0,
    usage_estimated: !inputKnown || !outputKnown,
  };
}

/** `ceil(code points / 4)` of everything received, tool names included; never above the bound of the answer. */
function estimateOutput(slots: readonly Slot[], { max_output_tokens }: CanonicalRequest): number {
  let size = 0;
  for (const slot of slots) size += codePoints(slot.name) + codePoints(slot.text);
  return Math.min(Math.ceil(size / 4), max_output_tokens);
}
