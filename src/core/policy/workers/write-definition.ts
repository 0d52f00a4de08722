// Serialises a definition: equal content gives equal text, defaults are omitted (13 §3.4).
import { dump } from 'js-yaml';
import { z } from 'zod';
import type { WorkerDetail, WorkerInfo } from '#protocol/api/worker-bodies.ts';
import type { Config } from '#protocol/config.ts';
import {
  AttachmentPolicySchema,
  type FoundWorker,
  SandboxSchema,
  STANDARD_POLICY,
  ToolRuleSchema,
  type WorkerDefinition,
  WorkerDefinitionSchema,
  WorkerNameSchema,
} from '#protocol/worker-definition.ts';
import { namesTool } from '../tools/tool-names.ts';
import { checkDefinition, type Fault } from './read-definition.ts';

type Fields = Readonly<Record<string, unknown>>;

/** YAML of a definition that was checked. Its last line ends. */
export function formatDefinition(definition: WorkerDefinition): string {
  const { name, ...rest } = definition;
  const { name: _, ...standard } = WorkerDefinitionSchema.parse({ name }) as Fields;
  const policy = definition.attachment_policy;
  const written = withoutDefaults(
    {
      ...rest,
      sandboxes: writeEntries(definition.sandboxes, (key) => SandboxSchema.parse({ name: key, path: '.' }), ['path']),
      attachment_policy: policy === null ? null : withoutDefaults(policy, AttachmentPolicySchema.parse({})),
      tool_rules: writeEntries(definition.tool_rules, (key) => ToolRuleSchema.parse({ name: key }), []),
    },
    standard,
  );
  return dump({ name, ...written }, { lineWidth: -1, noRefs: true, indent: 2 });
}

/** Entries of a map by name (sandboxes, rules), each without default values. */
function writeEntries(
  map: Readonly<Record<string, Fields>>,
  standard: (key: string) => Fields,
  always: readonly string[],
): Fields {
  // Names are ASCII, so code unit order is byte order.
  return Object.fromEntries(
    Object.keys(map)
      .sort()
      .map((key) => [key, withoutDefaults(map[key]!, standard(key), always)]),
  );
}

/** In the order of the shape, what differs from the standard. */
function withoutDefaults(value: Fields, standard: Fields, always: readonly string[] = []): Fields {
  const differs = (key: string) => JSON.stringify(value[key]) !== JSON.stringify(standard[key]);
  return Object.fromEntries(Object.entries(value).filter(([key]) => always.includes(key) || differs(key)));
}

// Completes a model's proposal to a definition: fields that a model may not set come from the configuration (13 §2).

const createTextSchema = (most: number) =>
  z
    .string()
    .min(1)
    .max(most)
    .refine((t) => t.trim() !== '', 'must not be blank');

/** Fields of a worker that a model may set. */
export const WorkerSpecSchema = z.strictObject({
  name: WorkerNameSchema,
  instructions: createTextSchema(200_000),
  description: createTextSchema(1024),
  model: z.string().min(1).max(256).nullable().default(null),
  output_schema_ref: z.string().min(1).max(512).nullable().default(null),
  tools: z.array(z.string().min(1).max(128)).max(256).default([]),
});
export type WorkerSpec = z.infer<typeof WorkerSpecSchema>;

/** @param creator the tools of the proposing session: a worker gets configured tools only from among them */
export function expandSpec(spec: WorkerSpec, defaults: Config['workers']['creation'], creator: readonly string[]) {
  const granted = creator.filter((tool) => defaults.default_tools.some((entry) => namesTool(entry, tool)));
  return {
    name: spec.name,
    description: spec.description,
    instructions: spec.instructions,
    model: spec.model ?? defaults.default_model,
    output_schema_ref: spec.output_schema_ref,
    sandboxes: defaults.default_sandboxes,
    // An unset policy is omitted: an empty one would count as the worker's own policy for files that it passes on.
    attachment_policy:
      Object.keys(defaults.default_attachment_policy).length === 0 ? null : defaults.default_attachment_policy,
    allow_workers: defaults.default_allow_workers,
    tools: [...new Set([...granted, ...spec.tools])],
    tool_rules: defaults.default_tool_rules,
    locked: false,
  };
}

/** Faults of the configured defaults, by key of `workers.creation`: every worker that a model creates would have them. */
export function findCreationFaults(defaults: Config['workers']['creation']): readonly Fault[] {
  const spec = { name: 'made', instructions: 'x', description: 'x', model: null, output_schema_ref: null };
  const { faults } = checkDefinition(expandSpec({ ...spec, tools: defaults.default_tools }, defaults, []), null);
  return faults.map(({ path: [field, ...rest], message }) => ({
    path: [`default_${String(field)}`, ...rest],
    message,
  }));
}

// A definition as callers see it (13 §10).

/** Fields of a session's worker other than its definition. */
export interface Made {
  readonly root_session_id: WorkerInfo['root_session_id'];
  readonly created_by_session_id: WorkerInfo['created_by_session_id'];
  readonly created_by_tool_use_id: WorkerInfo['created_by_tool_use_id'];
  readonly edited_by_user: boolean;
  readonly created_at: string;
}

export function toWorkerInfo(worker: FoundWorker, made: Made | null): WorkerInfo {
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
    effort: definition?.effort ?? null,
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

/** The same with the whole definition. */
export function toWorkerDetail(worker: FoundWorker, made: Made | null): WorkerDetail {
  const { definition, instructions, instructions_source } = worker;
  return {
    ...toWorkerInfo(worker, made),
    definition,
    resolved_instructions: instructions,
    instructions_source,
    yaml: definition === null ? null : formatDefinition(definition),
  };
}

function acceptsAttachments({ attachment_policy }: NonNullable<FoundWorker['definition']>): boolean {
  return (attachment_policy ?? STANDARD_POLICY).max_attachments > 0;
}
