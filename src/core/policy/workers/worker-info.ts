// A definition as callers see it (13 §10).
import type { WorkerDetail, WorkerInfo } from '#protocol/api/workers.ts';
import { type FoundWorker, STANDARD_POLICY } from '#protocol/worker/definition.ts';
import { definitionYaml } from './write-definition.ts';

/** What a session's worker has beside its definition. */
export interface Made {
  readonly root_session_id: WorkerInfo['root_session_id'];
  readonly created_by_session_id: WorkerInfo['created_by_session_id'];
  readonly created_by_tool_use_id: WorkerInfo['created_by_tool_use_id'];
  readonly edited_by_user: boolean;
  readonly created_at: string;
}

export function workerInfo(worker: FoundWorker, made: Made | null): WorkerInfo {
  const { definition } = worker;
  return {
    name: worker.name,
    description: definition?.description ?? null,
    origin: worker.origin,
    read_only: worker.read_only,
    locked: definition?.locked ?? false,
    valid: worker.errors.length === 0,
    errors: [...worker.errors],
    warnings: [...worker.warnings],
    digest: worker.digest,
    path: worker.path,
    model: definition?.model ?? null,
    tier: definition?.tier ?? null,
    accepts_attachments: definition !== null && acceptsAttachments(definition),
    output_schema_ref: definition?.output_schema_ref ?? null,
    sandboxes: Object.values(definition?.sandboxes ?? {}),
    tools: definition?.tools ?? [],
    allow_workers: definition?.allow_workers ?? [],
    root_session_id: made?.root_session_id ?? null,
    created_by_session_id: made?.created_by_session_id ?? null,
    created_by_tool_use_id: made?.created_by_tool_use_id ?? null,
    edited_by_user: made?.edited_by_user ?? null,
    created_at: made?.created_at ?? null,
  };
}

/** The same with what it consists of. */
export function workerDetail(worker: FoundWorker, made: Made | null): WorkerDetail {
  const { definition, instructions, instructions_source } = worker;
  return {
    ...workerInfo(worker, made),
    definition,
    resolved_instructions: instructions,
    instructions_source,
    yaml: definition === null ? null : definitionYaml(definition),
  };
}

function acceptsAttachments({ attachment_policy }: NonNullable<FoundWorker['definition']>): boolean {
  return (attachment_policy ?? STANDARD_POLICY).max_attachments > 0;
}
