// Payloads of `session.*` (02 §9.1).
import { z } from 'zod';
import {
  ApprovalModeSchema,
  CountSchema,
  DoorSchema,
  SessionIdSchema,
  Sha256Schema,
  ToolUseIdSchema,
  UlidSchema,
  UsdSchema,
  WorkerOriginSchema,
} from '../scalars.ts';
import { DispositionSchema } from '../session.ts';

export const SessionCreatedSchema = z.strictObject({
  workspace_path: z.string(),
  workspace_hash: Sha256Schema,
  initial_active_model: z.string().nullable(),
  routing_policy_version: Sha256Schema.nullable(),
  parent_session_id: SessionIdSchema.nullable(),
  parent_tool_use_id: ToolUseIdSchema.nullable(),
  is_worker: z.boolean(),
  root_session_id: SessionIdSchema,
  delegation_depth: CountSchema,
  worker_name: z.string().nullable(),
  worker_digest: z.string().nullable(),
  worker_origin: WorkerOriginSchema.nullable(),
  approval_mode: ApprovalModeSchema,
  door: DoorSchema,
  client: z.string().nullable(),
});

export const SessionEndedSchema = z.strictObject({
  disposition: DispositionSchema,
  turn_count: CountSchema,
  total_cost_usd: UsdSchema,
  duration_seconds: z.number().min(0),
});

// Payloads of `memory.*`, `skill.*` and `context.*` (02 §9.8).

const MemoryFileSchema = z.enum(['MEMORY.md', 'USER.md']);
export type MemoryFile = z.infer<typeof MemoryFileSchema>;

/** Hashes and sizes are those of the bytes on the disk. */
export const MemoryUpdatedSchema = z.strictObject({
  file: MemoryFileSchema,
  operation: z.enum(['add', 'replace', 'consolidate']),
  before_hash: Sha256Schema,
  after_hash: Sha256Schema,
  before_size_bytes: CountSchema,
  after_size_bytes: CountSchema,
});

/** Hashes and sizes of one write of a memory file. */
export type MemoryWrite = Omit<z.infer<typeof MemoryUpdatedSchema>, 'file' | 'operation'>;

export const SkillLoadedSchema = z.strictObject({
  skill_id: z.string(),
  skill_version: z.string().regex(/^[0-9a-f]{16}$/),
  load_size_tokens: CountSchema,
  source: z.enum(['global', 'workspace']),
  triggered_by_tool_use_id: ToolUseIdSchema,
});

export const ContextCompactedSchema = z.strictObject({
  checkpoint_id: UlidSchema,
  kind: z.enum(['elide', 'summary']),
  tokens_before: CountSchema,
  tokens_after: CountSchema,
  message_count: CountSchema,
  model: z.string().nullable(),
});

// Payload of `worker.created` (02 §9.10).

export const WorkerCreatedSchema = z.strictObject({
  name: z.string(),
  origin: WorkerOriginSchema,
  digest: Sha256Schema,
  path: z.string().nullable(),
  tool_use_id: ToolUseIdSchema.nullable(),
  edited_by_user: z.boolean(),
  /** Of the definition of the same name and session that this one took the place of. */
  replaces_digest: Sha256Schema.nullable(),
});

// Payloads of `pattern.*` and `eval.*` (02 §9.9).

export const PatternRecordedSchema = z.strictObject({
  fingerprint_id: UlidSchema,
  primary_model: z.string(),
  sample_size_before: CountSchema,
  sample_size_after: CountSchema,
  was_new_fingerprint: z.boolean(),
  success_score: z.number().nullable(),
  cost_usd_at_record: UsdSchema,
  pricing_version: z.string(),
});

export const EvalCompletedSchema = z.strictObject({
  eval_id: UlidSchema,
  subject_kind: z.enum(['turn', 'session']),
  subject_id: z.string(),
  score: z.number().min(0).max(1),
  confidence: z.number().min(0).max(1),
  rubric_id: z.string(),
  rubric_version: z.string(),
  signals: z.record(z.string(), z.unknown()),
});
