// From what a model proposes to a whole definition: what it may not say comes from the server's configuration (13 §2).
import { z } from 'zod';
import type { Config } from '#protocol/config.ts';
import { WorkerNameSchema } from '#protocol/worker/definition.ts';
import { namesTool } from '../tools/tool-names.ts';
import type { Fault } from './fault.ts';
import { checkDefinition } from './read-definition.ts';

const text = (most: number) =>
  z
    .string()
    .min(1)
    .max(most)
    .refine((t) => t.trim() !== '', 'must not be blank');

/** What a model may say of a worker. */
export const WorkerSpecSchema = z.strictObject({
  name: WorkerNameSchema,
  instructions: text(200_000),
  description: text(1024),
  model: z.string().min(1).max(256).nullable().default(null),
  output_schema_ref: z.string().min(1).max(512).nullable().default(null),
  tools: z.array(z.string().min(1).max(128)).max(256).default([]),
});
export type WorkerSpec = z.infer<typeof WorkerSpecSchema>;

/** @param creator the tools of whoever proposes it: what a worker gets of the configured ones is among them */
export function expandSpec(spec: WorkerSpec, defaults: Config['workers']['creation'], creator: readonly string[]) {
  const granted = creator.filter((tool) => defaults.default_tools.some((entry) => namesTool(entry, tool)));
  return {
    name: spec.name,
    description: spec.description,
    instructions: spec.instructions,
    model: spec.model ?? defaults.default_model,
    output_schema_ref: spec.output_schema_ref,
    sandboxes: defaults.default_sandboxes,
    // Nothing configured is nothing written: an empty one would count as the worker's own for what it hands on.
    attachment_policy:
      Object.keys(defaults.default_attachment_policy).length === 0 ? null : defaults.default_attachment_policy,
    allow_workers: defaults.default_allow_workers,
    tools: [...new Set([...granted, ...spec.tools])],
    tool_rules: defaults.default_tool_rules,
    locked: false,
  };
}

/** What is wrong with the configured defaults, by key of `workers.creation`: every worker that a model makes would have it. */
export function creationFaults(defaults: Config['workers']['creation']): readonly Fault[] {
  const spec = { name: 'made', instructions: 'x', description: 'x', model: null, output_schema_ref: null };
  const { faults } = checkDefinition(expandSpec({ ...spec, tools: defaults.default_tools }, defaults, []), null);
  return faults.map(({ path: [field, ...rest], message }) => ({
    path: [`default_${String(field)}`, ...rest],
    message,
  }));
}
