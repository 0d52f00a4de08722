// What a client's request body says, whichever wire it came over; read within bounds, its first fault in one line.
import type { z } from 'zod';
import { readJson } from '#core/policy/parsing/json.ts';
import { CLIENT_BODY } from '#core/policy/parsing/limits.ts';
import { plainIssues } from '#core/policy/parsing/plain-issue.ts';
import type { ToolUseId } from '#protocol/ids.ts';
import type { ContentBlock } from '#protocol/message.ts';
import type { WireTool } from '#protocol/model-request.ts';
import { err, ok, type Result } from '#protocol/result.ts';
import type { JsonSchema } from '#protocol/tool.ts';

export interface ClientMessage {
  readonly role: 'user' | 'assistant' | 'tool';
  /** Of a `tool` message: exactly one result. */
  readonly content: readonly ContentBlock[];
}

export interface ClientRequest {
  /** The name as it came. */
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

/** Our id for the id that a client gave a call; equal ids give equal ones. */
export type CallIds = (wireId: string) => ToolUseId;

/** The body in this shape. The error is one line that names the field. */
export function readBody<T>(text: string, schema: z.ZodType<T>): Result<T, string> {
  const json = readJson(text, CLIENT_BODY);
  if (!json.ok) return err(`body: ${json.error}`);
  const parsed = schema.safeParse(json.value);
  if (parsed.success) return ok(parsed.data);
  const issue = plainIssues(parsed.error)[0]!;
  return err(`${issue.path.map(String).join('.') || 'body'}: ${issue.message}`);
}
