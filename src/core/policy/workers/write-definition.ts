// A definition as it is saved: the same text for the same content, defaults left out (13 §3.4).
import { dump } from 'js-yaml';
import {
  AttachmentPolicySchema,
  SandboxSchema,
  ToolRuleSchema,
  type WorkerDefinition,
  WorkerDefinitionSchema,
} from '#protocol/worker/definition.ts';

type Fields = Readonly<Record<string, unknown>>;

/** YAML of a definition that was checked. Its last line ends. */
export function definitionYaml(definition: WorkerDefinition): string {
  const { name, ...rest } = definition;
  const { name: _, ...standard } = WorkerDefinitionSchema.parse({ name }) as Fields;
  const policy = definition.attachment_policy;
  const written = without(
    {
      ...rest,
      sandboxes: entries(definition.sandboxes, (key) => SandboxSchema.parse({ name: key, path: '.' }), ['path']),
      attachment_policy: policy === null ? null : without(policy, AttachmentPolicySchema.parse({})),
      tool_rules: entries(definition.tool_rules, (key) => ToolRuleSchema.parse({ name: key }), []),
    },
    standard,
  );
  return dump({ name, ...written }, { lineWidth: -1, noRefs: true, indent: 2 });
}

/** By name, each without what is standard; its name is its key. */
function entries(
  map: Readonly<Record<string, Fields>>,
  standard: (key: string) => Fields,
  always: readonly string[],
): Fields {
  // Names are ASCII, so code unit order is byte order.
  return Object.fromEntries(
    Object.keys(map)
      .sort()
      .map((key) => [key, without(map[key]!, standard(key), always)]),
  );
}

/** In the order of the shape, what differs from the standard. */
function without(value: Fields, standard: Fields, always: readonly string[] = []): Fields {
  const differs = (key: string) => JSON.stringify(value[key]) !== JSON.stringify(standard[key]);
  return Object.fromEntries(Object.entries(value).filter(([key]) => always.includes(key) || differs(key)));
}
