// One model call while it is under way, and what became of it.

import type { AdapterError } from '#core/ports/provider.ts';
import type { Purpose } from '#protocol/event/llm.ts';
import type { EventId, MessageId, RequestId, ToolUseId } from '#protocol/ids.ts';
import type { MessageComplete } from '#protocol/model-stream.ts';
import type { BudgetRefusal } from '../state/reservations.ts';
import type { ToolResults } from '../state/tool-results.ts';
import type { TurnEnd, TurnRun } from '../state/turn-run.ts';

export type CallOutcome =
  /** `end` is set when the turn completed in the same transaction. */
  | { readonly ok: true; readonly settled: ToolResults; readonly end: TurnEnd | null }
  | { readonly ok: false; readonly error: AdapterError }
  /** A limit refused the call before it left. */
  | { readonly ok: false; readonly error: null; readonly refusal: BudgetRefusal };

/** What the stream said so far that its last event does not repeat. */
export interface Heard {
  /** Left behind after its cancellation: whatever still comes is discarded. */
  left_behind: boolean;
  message_id: MessageId | null;
  /** Of a call whose text is not streamed to anybody: what came of it. */
  unshown: string;
  complete: MessageComplete | null;
  readonly provider_tool_ids: Map<ToolUseId, string | null>;
  readonly input_errors: Map<ToolUseId, string>;
}

export interface Call {
  readonly run: TurnRun;
  readonly purpose: Purpose;
  readonly request_id: RequestId;
  readonly started: EventId;
  readonly began: number;
  readonly heard: Heard;
  /** A money limit covers it, whose share may have to be warned about. */
  readonly limited: boolean;
  /** It was paid for and its cost could not be stored: what was reserved for it is not given back. */
  unbooked: boolean;
}
