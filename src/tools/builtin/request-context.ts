// _request_context: a worker says what it lacks; the turn loop reads the request itself (04 §8).

import { REQUEST_CONTEXT_DESCRIPTION, REQUEST_CONTEXT_JSON_SCHEMA } from '#core/policy/delegation/tool-schemas.ts';
import type { ToolFactory } from '#core/ports/tool.ts';
import { REQUEST_CONTEXT, ToolError, toolText } from '#protocol/tool.ts';
import { define, nothingToCancel } from './definition.ts';

const definition = define({
  name: REQUEST_CONTEXT,
  description: REQUEST_CONTEXT_DESCRIPTION,
  input_schema: REQUEST_CONTEXT_JSON_SCHEMA,
  side_effects: 'none',
  requires_workspace: false,
  path_fields: [],
  requests_context: true,
});

export const requestContext: ToolFactory = () => ({
  definition,
  cancel: nothingToCancel,
  async execute(_input, { is_worker }) {
    if (!is_worker) throw new ToolError('permission_denied', 'only a worker can request context');
    return toolText('Request recorded.');
  },
});
