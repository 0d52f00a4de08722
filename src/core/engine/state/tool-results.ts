// What is known of the tool calls of one message while their turn runs.

import type { EventId, ToolUseId } from '#protocol/ids.ts';
import type { ToolResultBlock } from '#protocol/message.ts';

/** Results by call; a call without one did not finish. */
export type ToolResults = ReadonlyMap<ToolUseId, ToolResultBlock>;

/** The `tool.called` of a call. */
export interface StartedCall {
  readonly event_id: EventId;
  /** Of the input that ran, which a person may have edited. */
  readonly input_hash: string;
}
