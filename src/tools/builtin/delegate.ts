// delegate: hands a task to a worker; who the worker is, only the spawner knows (04 §4).

import { DELEGATE_DESCRIPTION, DELEGATE_JSON_SCHEMA } from '#core/policy/delegation/tool-schemas.ts';
import type { ToolFactory } from '#core/ports/tool.ts';
import { ToolError } from '#protocol/tool.ts';
import { define, nothingToCancel } from './definition.ts';

const definition = define({
  name: 'delegate',
  description: DELEGATE_DESCRIPTION,
  input_schema: DELEGATE_JSON_SCHEMA,
  side_effects: 'execute',
  requires_workspace: false,
  path_fields: [],
  // The worker's own clock bounds it.
  timeout_seconds: 0,
  spawns: 'delegate',
  // The worker of a call is found by the call's id.
  restartable: true,
});

export const delegate: ToolFactory = () => ({
  definition,
  // The signal of the call reaches the worker's turn.
  cancel: nothingToCancel,
  check: async (input, { spawner }) => (spawner === null ? [] : spawner.check(input)),
  async execute(input, { spawner }) {
    if (spawner === null) throw new ToolError('permission_denied', 'workers cannot delegate');
    return spawner.spawn(input);
  },
});
