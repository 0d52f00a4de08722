// The canonical message: the only conversation shape that is stored and routed (01 §4).
import { z } from 'zod';
import { MessageIdSchema, SessionIdSchema, TimeSchema, ToolUseIdSchema, TurnIdSchema } from './scalars.ts';
import { UsageSchema } from './usage.ts';

export const RoleSchema = z.enum(['user', 'assistant', 'system', 'tool']);
export type Role = z.infer<typeof RoleSchema>;
/** `partial` exists on the stream only and is never stored (01 §6.1). */
export const MessageStatusSchema = z.enum(['complete', 'partial', 'cancelled', 'error']);
export type MessageStatus = z.infer<typeof MessageStatusSchema>;

/** How a model call may stop. `cancelled` and `error` close a stream that was cut (11.2). */
export const StopReasonSchema = z.enum(['end_turn', 'max_tokens', 'stop_sequence', 'tool_use', 'cancelled', 'error']);
export type StopReason = z.infer<typeof StopReasonSchema>;

export const TextBlockSchema = z.strictObject({ type: z.literal('text'), text: z.string() });
export const ImageBlockSchema = z.strictObject({
  type: z.literal('image'),
  source: z.strictObject({ kind: z.literal('base64'), data: z.string() }),
  media_type: z.string(),
});
export const ToolUseBlockSchema = z.strictObject({
  type: z.literal('tool_use'),
  id: ToolUseIdSchema,
  name: z.string(),
  input: z.record(z.string(), z.unknown()),
});
export const ToolResultContentSchema = z.discriminatedUnion('type', [TextBlockSchema, ImageBlockSchema]);
export const ToolResultBlockSchema = z.strictObject({
  type: z.literal('tool_result'),
  tool_use_id: ToolUseIdSchema,
  content: z.array(ToolResultContentSchema),
  is_error: z.boolean(),
});
export const ThinkingBlockSchema = z.strictObject({
  type: z.literal('thinking'),
  text: z.string(),
  signature: z.string().nullable(),
});
export const RedactedThinkingBlockSchema = z.strictObject({ type: z.literal('redacted_thinking'), data: z.string() });
export const DocumentBlockSchema = z.strictObject({
  type: z.literal('document'),
  source: z.strictObject({ kind: z.literal('base64'), data: z.string() }),
  media_type: z.string(),
  name: z.string(),
});
export const ContentBlockSchema = z.discriminatedUnion('type', [
  TextBlockSchema,
  ImageBlockSchema,
  ToolUseBlockSchema,
  ToolResultBlockSchema,
  ThinkingBlockSchema,
  RedactedThinkingBlockSchema,
  DocumentBlockSchema,
]);

export type TextBlock = z.infer<typeof TextBlockSchema>;
export type ImageBlock = z.infer<typeof ImageBlockSchema>;
export type ToolUseBlock = z.infer<typeof ToolUseBlockSchema>;
export type ToolResultBlock = z.infer<typeof ToolResultBlockSchema>;
export type ThinkingBlock = z.infer<typeof ThinkingBlockSchema>;
export type RedactedThinkingBlock = z.infer<typeof RedactedThinkingBlockSchema>;
export type DocumentBlock = z.infer<typeof DocumentBlockSchema>;
export type ContentBlock = z.infer<typeof ContentBlockSchema>;
export type ToolResultContent = z.infer<typeof ToolResultContentSchema>;

export const RoutingModeSchema = z.enum(['override', 'manual', 'rule', 'pattern', 'delegate', 'default']);
export type RoutingMode = z.infer<typeof RoutingModeSchema>;

/** Why this model wrote this message; the full chain is on the turn's `route.decided`. */
export const RoutingDecisionRecordSchema = z.strictObject({
  mode: RoutingModeSchema,
  chosen_model: z.string(),
  reason: z.string(),
  rule_name: z.string().nullable(),
  confidence: z.number().nullable(),
  alternatives_considered: z.array(z.string()),
});
export type RoutingDecisionRecord = z.infer<typeof RoutingDecisionRecordSchema>;

/** Metadata as it crosses the wire; `provider_raw` never does (01 §6.4). */
export const MessageMetadataSchema = z.strictObject({
  model: z.string().nullable(),
  provider: z.string().nullable(),
  routing: RoutingDecisionRecordSchema.nullable(),
  usage: UsageSchema.nullable(),
  parent_tool_use_id: ToolUseIdSchema.nullable(),
  status: MessageStatusSchema,
});
export type MessageMetadata = z.infer<typeof MessageMetadataSchema>;

export const MessageSchema = z.strictObject({
  id: MessageIdSchema,
  session_id: SessionIdSchema,
  turn_id: TurnIdSchema.nullable(),
  role: RoleSchema,
  content: z.array(ContentBlockSchema),
  metadata: MessageMetadataSchema,
  created_at: TimeSchema,
});
/** The wire object. */
export type Message = z.infer<typeof MessageSchema>;

/** Opaque round-trip aid of one adapter: `{adapter, ...}`; read only by the adapter that wrote it. */
export type ProviderRaw = Readonly<Record<string, unknown>>;

/** A message as the engine and the store hold it. */
export interface StoredMessage extends Message {
  readonly provider_raw: ProviderRaw | null;
}

/** Metadata of a message that no model wrote. */
export function plainMetadata(parentToolUseId: MessageMetadata['parent_tool_use_id'] = null): MessageMetadata {
  return {
    model: null,
    provider: null,
    routing: null,
    usage: null,
    parent_tool_use_id: parentToolUseId,
    status: 'complete',
  };
}

export function textBlock(text: string): TextBlock {
  return { type: 'text', text };
}

/** Text blocks joined by a newline; '' when there is none. */
export function joinText(content: readonly ContentBlock[]): string {
  return content
    .filter((b): b is TextBlock => b.type === 'text')
    .map((b) => b.text)
    .join('\n');
}
export function toolUses(content: readonly ContentBlock[]): ToolUseBlock[] {
  return content.filter((b): b is ToolUseBlock => b.type === 'tool_use');
}

/** The wire form of a stored message: `provider_raw` stays inside (01 §6.4). */
export function withoutRaw(message: StoredMessage) {
  const { provider_raw: _, ...wire } = message;
  return wire;
}
