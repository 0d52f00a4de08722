// Tools around workers: delegate, _request_context, worker_create, worker_call (04 §4, 04 §8, 13 §6.3).
import {
  DELEGATE_DESCRIPTION,
  DELEGATE_JSON_SCHEMA,
  REQUEST_CONTEXT_DESCRIPTION,
  REQUEST_CONTEXT_JSON_SCHEMA,
} from '#core/policy/delegation/delegate-tool.ts';
import { attachmentsSchema, INPUT_SCHEMA, normaliseInput } from '#core/policy/workers/worker-tools.ts';
import type { ToolContext, ToolFactory, ToolInput } from '#core/ports/tool-port.ts';
import { BACKGROUND } from '#protocol/delegate.ts';
import { REQUEST_CONTEXT, ToolError, toolText } from '#protocol/tool.ts';
import { cancelNothing, defineTool, inputSchema } from './common.ts';

const delegateDefinition = defineTool({
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
  definition: delegateDefinition,
  // The signal of the call reaches the worker's turn.
  cancel: cancelNothing,
  check: async (input, { spawner }) => (spawner === null ? [] : spawner.check(input)),
  async execute(input, { spawner }) {
    if (spawner === null) throw new ToolError('permission_denied', 'workers cannot delegate');
    return spawner.spawn(input);
  },
});

// _request_context: a worker requests missing information; the turn loop reads the request itself (04 §8).

const requestContextDefinition = defineTool({
  name: REQUEST_CONTEXT,
  description: REQUEST_CONTEXT_DESCRIPTION,
  input_schema: REQUEST_CONTEXT_JSON_SCHEMA,
  side_effects: 'none',
  requires_workspace: false,
  path_fields: [],
  requests_context: true,
});

export const requestContext: ToolFactory = () => ({
  definition: requestContextDefinition,
  cancel: cancelNothing,
  async execute(_input, { is_worker }) {
    if (!is_worker) throw new ToolError('permission_denied', 'only a worker can request context');
    return toolText('Request recorded.');
  },
});

// worker_create and worker_call: a session creates its own workers and calls them (13 §6.3).

const workerCreateDefinition = defineTool({
  name: 'worker_create',
  description:
    'Creates a worker for this session: a specialist with instructions of its own, called with worker_call. A person sees the whole definition first and may change it; the answer states what is new. The name of a worker that you created replaces it, so that you can refine it. Its folders, rules and limits come from the server.',
  side_effects: 'write',
  requires_workspace: false,
  path_fields: [],
  creates_workers: true,
  barrier: true,
  group: 'worker.create',
  input_schema: inputSchema(
    {
      name: {
        type: 'string',
        pattern: '^[A-Za-z0-9_-]{1,64}$',
        description: 'Its name: new, or that of a worker which you created and want to replace.',
      },
      instructions: { type: 'string', minLength: 1, description: 'Its system prompt.' },
      description: { type: 'string', minLength: 1, maxLength: 1024, description: 'What it is for.' },
      model: { type: 'string', minLength: 1, description: 'Model id or alias.' },
      output_schema_ref: { type: 'string', minLength: 1, description: 'File below schemas/ that its answers follow.' },
      tools: { type: 'array', items: { type: 'string', minLength: 1 }, description: 'Some of your own tools.' },
    },
    ['name', 'instructions', 'description'],
  ),
});

const workerCallDefinition = defineTool({
  name: 'worker_call',
  description:
    'Calls a worker that was created in this session with worker_create. Other workers are tools of their own name.',
  side_effects: 'execute',
  requires_workspace: false,
  path_fields: [],
  // The worker's own clock bounds it.
  timeout_seconds: 0,
  spawns: 'worker_call',
  restartable: true,
  group: 'worker.call',
  input_schema: inputSchema(
    {
      worker: { type: 'string', minLength: 1, maxLength: 64, description: 'Its name.' },
      input: INPUT_SCHEMA,
      attachments: attachmentsSchema(null, []),
      background: BACKGROUND,
    },
    ['worker', 'input'],
  ),
});

export const workerCreate: ToolFactory = () => ({
  definition: workerCreateDefinition,
  cancel: cancelNothing,
  check: (input, context) => requireMaker(context).check(toProposal(input)),
  preview: (input, context) => requireMaker(context).describe(toProposal(input)),
  checkYaml: (yaml, context) => requireMaker(context).check({ yaml }),
  execute: (input, context) => requireMaker(context).make(toProposal(input)),
});

/** No model can write `yaml`: the schema has no such key. */
function toProposal(input: ToolInput) {
  if (typeof input.yaml === 'string') return { yaml: input.yaml };
  return { spec: input };
}

function requireMaker({ maker }: ToolContext) {
  if (maker === null) throw new ToolError('permission_denied', 'this session cannot create workers');
  return maker;
}

export const workerCall: ToolFactory = () => ({
  definition: workerCallDefinition,
  plain: normaliseInput,
  // The signal of the call reaches the worker's turn.
  cancel: cancelNothing,
  check: async (input, { spawner }) => spawner?.check(input) ?? [],
  shares: async (input, { spawner }) => spawner?.shares(input) ?? [],
  async execute(input, { spawner }) {
    if (spawner === null) throw new ToolError('permission_denied', 'this session cannot call workers');
    return spawner.spawn(input);
  },
});
