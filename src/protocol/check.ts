// Checks: commands with a name that decide whether what a worker left counts (20 §10).
import { z } from 'zod';
import type { SessionId, ToolUseId, TurnId } from './ids.ts';
import { EffortSchema, TierSchema } from './scalars.ts';

export const CHECK_NAME_PATTERN = /^[A-Za-z0-9_-]{1,64}$/;
/** Of one configuration. */
const MAX_CHECKS = 64;
const MAX_GLOBS = 256;
const MAX_RUNGS = 3;

export const CheckNameSchema = z
  .string()
  .regex(CHECK_NAME_PATTERN, 'must be 1 to 64 letters, digits, "_" and "-"')
  .refine((name) => name !== '__proto__', 'is not a name');

const globs = z
  .array(
    z
      .string()
      .min(1)
      .max(256)
      .refine((glob) => !glob.startsWith('/') && !glob.startsWith('!'), 'must be a path below the workspace'),
  )
  .max(MAX_GLOBS);

export const CheckSchema = z.strictObject({
  /** Runs with `/bin/sh -c`. */
  command: z
    .string()
    .min(1)
    .max(8192)
    .refine((text) => text.trim() !== '', 'must not be blank')
    .refine((text) => !text.includes('\0'), 'must not hold NUL'),
  timeout_seconds: z.int().min(1).max(1800).default(300),
  /** Files that the worker's changes never reach: tests, lock files, scripts of the check. */
  protect: globs.default([]),
  /** The check is skipped where no changed file matches; null = it always runs. */
  paths: globs.nullable().default(null),
});
export type Check = z.infer<typeof CheckSchema>;

/** By name. */
export const ChecksSchema = z
  .record(CheckNameSchema, CheckSchema)
  .refine((checks) => Object.keys(checks).length <= MAX_CHECKS, `has more than ${MAX_CHECKS} checks`);
export type Checks = z.infer<typeof ChecksSchema>;

/** What follows a check that failed: the same again, more effort, or another tier. */
export const RungSchema = z.union([
  z.literal('retry'),
  z.templateLiteral(['effort:', EffortSchema]),
  z.templateLiteral(['tier:', TierSchema]),
]);
export type Rung = z.infer<typeof RungSchema>;
export const RungsSchema = z.array(RungSchema).max(MAX_RUNGS);

/** A check as it was when its delegation was accepted: what a worker changes later has no effect on it. */
export interface StoredCheck extends Check {
  readonly name: string;
}

/** One run of a check on what a worker left: a row of `delegation_attempts`. Trees are git's object ids. */
export interface AttemptRecord {
  readonly tool_use_id: ToolUseId;
  /** From 1. */
  readonly attempt: number;
  readonly worker_session_id: SessionId;
  /** The worker's turn that led to it. */
  readonly turn_id: TurnId;
  /** The rung that the turn was run on; null = the first turn. */
  readonly rung: Rung | null;
  readonly check_name: string;
  /** What the worker left, without its changes of protected files; null until it was recorded. */
  readonly result_tree: string | null;
  /** Leader of the process group of the running command; null before it started and after it ended. */
  readonly process_group: number | null;
  /** Null until the command has ended. */
  readonly passed: boolean | null;
  /** Null where a signal or the time limit ended it. */
  readonly exit_code: number | null;
  /** Its last 16 KiB. */
  readonly output: string | null;
  readonly protected_changes: readonly string[];
  readonly wall_time_seconds: number;
  readonly started_at: number;
  /** Null = it is to be run again after a restart. */
  readonly ended_at: number | null;
}

/** The variable by which processes of a check are found: `<tool_use_id>.<attempt>`. */
export const CHECK_MARKER = 'METIS_CHECK';

export function formatMarker({ tool_use_id, attempt }: Pick<AttemptRecord, 'tool_use_id' | 'attempt'>): string {
  return `${tool_use_id}.${attempt}`;
}
