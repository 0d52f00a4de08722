// A named worker as a tool: who the worker is, only the spawner knows (13 §6.1).

import { plainInput } from '#core/policy/workers/worker-tools.ts';
import type { Tool } from '#core/ports/tool.ts';
import { type ToolDefinition, ToolError } from '#protocol/tool.ts';
import { validatorOnUse } from './schema.ts';

export function workerTool(definition: ToolDefinition) {
  const factory = (): Tool => ({
    definition,
    plain: plainInput,
    // The signal of the call reaches the worker's turn.
    cancel: async () => false,
    check: async (input, { spawner }) => spawner?.check(input) ?? [],
    shares: async (input, { spawner }) => spawner?.shares(input) ?? [],
    async execute(input, { spawner }) {
      if (spawner === null) throw new ToolError('permission_denied', 'this session cannot call workers');
      return spawner.spawn(input);
    },
  });
  return { definition, validate: validatorOnUse(definition.input_schema), factory };
}
