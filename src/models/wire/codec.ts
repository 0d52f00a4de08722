// Interfaces of codecs, independent of the wire: client requests, decoders, event encoders, log.
import type { z } from 'zod';
import { readJson } from '#core/policy/parsing/json.ts';
import { describeIssues } from '#core/policy/parsing/plain-issue.ts';
import { CLIENT_BODY } from '#core/policy/parsing/text-limits.ts';
import type { ToolUseId } from '#protocol/ids.ts';
import type { ContentBlock } from '#protocol/message.ts';
import type { WireTool } from '#protocol/model-call.ts';
import { err, ok, type Result } from '#protocol/result.ts';
import type { JsonSchema } from '#protocol/tool.ts';
import type { TokenUsage } from '#protocol/usage.ts';
import type { AssembledEvent } from './assembly.ts';

export interface ClientMessage {
  readonly role: 'user' | 'assistant' | 'tool';
  /** Exactly one result, in a `tool` message. */
  readonly content: readonly ContentBlock[];
}

export interface ClientRequest {
  /** The name as received. */
  readonly model: string;
  /** All system text, parts separated by a blank line; null = none. */
  readonly system: string | null;
  readonly messages: readonly ClientMessage[];
  readonly tools: readonly WireTool[];
  readonly max_output_tokens: number | null;
  readonly stop_sequences: readonly string[];
  readonly temperature: number | null;
  readonly output_schema: JsonSchema | null;
}

/** Maps a client's call id to an id of this server; equal ids give equal results. */
export type CallIds = (wireId: string) => ToolUseId;

/** The body in this shape. The error is one line that names the field. */
export function readBody<T>(text: string, schema: z.ZodType<T>): Result<T, string> {
  const json = readJson(text, CLIENT_BODY);
  if (!json.ok) return err(`body: ${json.error}`);
  const parsed = schema.safeParse(json.value);
  if (parsed.success) return ok(parsed.data);
  const issue = describeIssues(parsed.error)[0]!;
  return err(`${issue.path.map(String).join('.') || 'body'}: ${issue.message}`);
}

/** Reads the events of one response into an assembly. */
export interface Decoder {
  /** One server-sent event that is not a comment. Throws `WireFault` for a reported failure, `SyntaxError` for data that is not JSON. */
  event(data: string): void;
  /** The body ended without an end event: completes the assembly if the wire allows that. */
  end(): void;
}

/** The content of the first event of an answer. */
export interface AnswerHead {
  /** The answer's id on the wire. */
  readonly id: string;
  /** The model's name on the wire. */
  readonly model: string;
  /** Counts of the prompt, where they are known before the answer; else null. */
  readonly usage: TokenUsage | null;
}

/**
 * The server-sent events of one canonical event, as text. Estimated counts are left out.
 * A failed or cancelled message gets no end event: its reader sees a truncated stream.
 */
export type EventEncoder = (event: AssembledEvent) => readonly string[];

/** Writes a log line: an unexpected event, or a block that the wire cannot express. */
type WriteLog = (fields: Readonly<Record<string, unknown>>, message: string) => void;

export interface CodecLog {
  readonly debug: WriteLog;
  readonly warn: WriteLog;
}
