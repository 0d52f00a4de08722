// Payloads of `memory.*`, `skill.*` and `context.*` (02 §9.8).
import { z } from 'zod';
import { CountSchema, Sha256Schema, ToolUseIdSchema, UlidSchema } from '../scalars.ts';

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

/** What is told of one write of a memory file. */
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
