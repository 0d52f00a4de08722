// A named worker: the definition that a file holds, and what a model may propose (13 §2).
import { z } from 'zod';
import { CheckNameSchema, RungsSchema } from './check.ts';
import { IsolationSchema } from './file-change.ts';
import type { SessionId, ToolUseId } from './ids.ts';
import { EffortSchema, TierSchema } from './scalars.ts';

export const WORKER_NAME_PATTERN = /^[A-Za-z0-9_-]{1,64}$/;
const SCHEMA_REF_PATTERN = /^[A-Za-z0-9_][A-Za-z0-9_./-]*$/;
/** More entries than a person writes are a mistake or an attack. */
const MAX_ENTRIES = 1000;
const MAX_RULES = 256;
const MAX_SANDBOXES = 64;
const MAX_SUFFIXES = 64;

export const WorkerNameSchema = z
  .string()
  .regex(WORKER_NAME_PATTERN, 'must be 1 to 64 letters, digits, "_" and "-"')
  .refine((name) => name !== '__proto__', 'is not a name');

const suffix = z
  .string()
  .max(32)
  .transform((text) => text.toLowerCase())
  .refine((text) => text === '' || (text.startsWith('.') && text.length > 1 && !text.includes('/')), {
    message: 'must be "" or begin with "."',
  });
const SuffixesSchema = z.array(suffix).max(MAX_SUFFIXES);
const entryList = (most: number) => z.array(z.string().min(1).max(128)).max(most);

export const SandboxSchema = z.strictObject({
  name: WorkerNameSchema,
  /** Relative to the workspace. */
  path: z.string().min(1).max(4096),
  mode: z.enum(['ro', 'rw']).default('ro'),
  /** Empty = all. */
  allowed_suffixes: SuffixesSchema.default([]),
  /** Of one file: read, as written, or attached. */
  max_bytes: z.int().min(1).default(2_000_000),
});
export type Sandbox = z.infer<typeof SandboxSchema>;

export const AttachmentPolicySchema = z.strictObject({
  max_attachments: z.int().min(0).default(4),
  max_total_bytes: z.int().min(1).default(10_000_000),
  /** Empty = all. */
  allowed_suffixes: SuffixesSchema.default([]),
  /** Wins over the allowed ones. */
  denied_suffixes: SuffixesSchema.default([]),
});
export type AttachmentPolicy = z.infer<typeof AttachmentPolicySchema>;

export const ToolRuleSchema = z.strictObject({
  name: z.string().min(1).max(128),
  allowed: z.boolean().default(true),
  /** Null = decided as without a rule: a rule never frees a tool by what it leaves out. */
  approval_required: z.boolean().nullable().default(null),
  /** Shown to the person who approves the call. */
  description: z.string().max(1024).nullable().default(null),
});
export type ToolRule = z.infer<typeof ToolRuleSchema>;

const atMost = (most: number, what: string) => (map: Readonly<Record<string, unknown>>, context: z.RefinementCtx) => {
  if (Object.keys(map).length > most) context.addIssue({ code: 'custom', message: `has more than ${most} ${what}` });
};
export const SandboxesSchema = z
  .record(WorkerNameSchema, SandboxSchema)
  .superRefine(atMost(MAX_SANDBOXES, 'sandboxes'));
export const ToolRulesSchema = z
  .record(z.string().min(1).max(128), ToolRuleSchema)
  .superRefine(atMost(MAX_RULES, 'rules'));

/** A definition with every default filled in; keys in the order in which they are written. */
export const WorkerDefinitionSchema = z.strictObject({
  name: WorkerNameSchema,
  description: z.string().max(1024).nullable().default(null),
  /** The system prompt as it is; null = a prompt file of the worker's name (13 §3.3). */
  instructions: z.string().nullable().default(null),
  /** Id or alias, with an effort or without. */
  model: z.string().min(1).max(256).nullable().default(null),
  tier: TierSchema.nullable().default(null),
  /** Wins over that of the tier (22 §1). */
  effort: EffortSchema.nullable().default(null),
  output_schema_ref: z
    .string()
    .max(512)
    .regex(SCHEMA_REF_PATTERN, 'must be a path below schemas/, such as answer.json')
    .nullable()
    .default(null),
  sandboxes: SandboxesSchema.default({}),
  /** Null = not written: the standard one for what comes in, and none for what goes out. */
  attachment_policy: AttachmentPolicySchema.nullable().default(null),
  /** Workers it may call; `*` = every one of the project. */
  allow_workers: entryList(MAX_ENTRIES).default([]),
  /** Further tools by name, or by a prefix with one final `*`. */
  tools: entryList(MAX_RULES).default([]),
  tool_rules: ToolRulesSchema.default({}),
  max_tokens: z.int().min(1).nullable().default(null),
  timeout_seconds: z.number().gt(0).max(3600).nullable().default(null),
  /** Where its calls work; null = by the configuration (20 §2). */
  isolation: IsolationSchema.nullable().default(null),
  /** The check that decides whether its changes count (20 §10). */
  check: CheckNameSchema.nullable().default(null),
  on_fail: RungsSchema.default([]),
  locked: z.boolean().default(false),
});
export type WorkerDefinition = z.infer<typeof WorkerDefinitionSchema>;

export const STANDARD_POLICY: AttachmentPolicy = AttachmentPolicySchema.parse({});

/** An error or warning about a definition, with its place. */
export const WorkerProblemSchema = z.object({
  /** Key path in the definition; '' = the file as a whole. */
  path: z.string(),
  message: z.string(),
  /** Relative to the workspace; null for a definition that is in no file. */
  file: z.string().nullable(),
  line: z.int().min(1).nullable(),
});
export type WorkerProblem = z.infer<typeof WorkerProblemSchema>;

/** The definition a session runs with. */
export interface WorkerSnapshot {
  readonly definition: WorkerDefinition;
  /** JSON Schema that the answers must match. */
  readonly output_schema: Readonly<Record<string, unknown>> | null;
}

/** A definition as it was found, valid or not; one with errors cannot be called. */
export interface FoundWorker {
  readonly name: string;
  readonly origin: 'project' | 'session';
  /** Relative to the workspace; of a session's worker the copy for people. */
  readonly path: string | null;
  /** In a form that is only read (`.claude/agents`), or no file at all. */
  readonly read_only: boolean;
  /** Null when nothing could be made of the file. */
  readonly definition: WorkerDefinition | null;
  /** The system prompt; null when there is none to be had. */
  readonly instructions: string | null;
  /** `inline`, or the prompt file. */
  readonly instructions_source: string | null;
  /** What `output_schema_ref` names, as JSON. */
  readonly output_schema: unknown;
  readonly digest: string | null;
  /** Files that the definition and its instructions were read from; empty for a session's worker. */
  readonly sources: readonly FileDigest[];
  readonly errors: readonly WorkerProblem[];
  readonly warnings: readonly WorkerProblem[];
}

// A worker that a session made for itself: it lives as long as the session tree (13 §3.4).

/** Times are Unix milliseconds. */
export interface SessionWorker {
  readonly root_session_id: SessionId;
  readonly name: string;
  readonly created_by_session_id: SessionId;
  readonly created_by_tool_use_id: ToolUseId;
  readonly yaml: string;
  /** Of the copy for people. */
  readonly path: string | null;
  readonly digest: string;
  readonly edited_by_user: boolean;
  readonly created_at: number;
}

// A file of a workspace whose very bytes a person has trusted (20 §11).

/** A file as it was read. */
export interface FileDigest {
  /** Relative to the workspace. */
  readonly path: string;
  readonly sha256: string;
}

export interface TrustedFile extends FileDigest {
  readonly workspace_path: string;
  /** `user` until callers have names. */
  readonly trusted_by: string;
  /** Unix milliseconds. */
  readonly trusted_at: number;
}

/** Its text is null where it was trusted before texts were stored, or cannot be stored. */
export interface TrustedText extends TrustedFile {
  readonly content: string | null;
}
