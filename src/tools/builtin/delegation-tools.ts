// Tools around workers: delegate, _request_context, worker_create, worker_call (04 §4, 04 §8, 13 §6.3).
import {
  DELEGATE_DESCRIPTION,
  DELEGATE_JSON_SCHEMA,
  REQUEST_CONTEXT_DESCRIPTION,
  REQUEST_CONTEXT_JSON_SCHEMA,
} from '#core/policy/delegation/delegate-tool.ts';
import { attachmentsSchema, INPUT_SCHEMA, normaliseInput } from '#core/policy/workers/worker-tools.ts';
import type { ToolContext, ToolFactory, ToolInput } from '#core/ports/tool-port.ts';
import { BACKGROUND, CONTINUED, ISOLATED } from '#protocol/delegate.ts';
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

// workers: a planner manages the workers that it runs in the background (20 §9).

const workersDefinition = defineTool({
  name: 'workers',
  description:
    'Manages the workers that you started with `background`. list: their states. wait: returns when one of them (`for` "any") or all of them ("all") are done, with their results; `ids` names some, `seconds` limits the wait. message: sends a worker more to read while it works. conclude: lets it answer with what it has. cancel: ends it. Results that you do not wait for come as messages.',
  side_effects: 'none',
  requires_workspace: false,
  path_fields: [],
  // A wait is bounded by its input and by the workers' clocks.
  timeout_seconds: 0,
  manages_workers: true,
  input_schema: inputSchema(
    {
      action: { type: 'string', enum: ['list', 'wait', 'message', 'conclude', 'cancel'] },
      id: { type: 'string', maxLength: 64, description: 'The worker, for message, conclude and cancel.' },
      text: { type: 'string', minLength: 1, maxLength: 20_000, description: 'For message.' },
      ids: {
        type: 'array',
        items: { type: 'string', maxLength: 64 },
        minItems: 1,
        maxItems: 100,
        description: 'For wait. Default: all.',
      },
      for: { type: 'string', enum: ['any', 'all'], description: 'For wait.' },
      seconds: { type: 'integer', minimum: 1, maximum: 600, description: 'For wait. Default: no limit.' },
    },
    ['action'],
  ),
});

/** The fields that an action requires, and those that it takes beside them. */
const WORKER_ACTIONS: Readonly<
  Record<string, { readonly required: readonly string[]; readonly taken: readonly string[] }>
> = {
  list: { required: [], taken: [] },
  wait: { required: ['for'], taken: ['ids', 'seconds'] },
  message: { required: ['id', 'text'], taken: [] },
  conclude: { required: ['id'], taken: [] },
  cancel: { required: ['id'], taken: [] },
};

export const workers: ToolFactory = () => ({
  definition: workersDefinition,
  cancel: cancelNothing,
  async check(input) {
    const { required, taken } = WORKER_ACTIONS[String(input.action)]!;
    const missing = required.filter((key) => input[key] === undefined);
    const excess = Object.keys(input).filter((key) => key !== 'action' && ![...required, ...taken].includes(key));
    const isBlank = typeof input.text === 'string' && input.text.trim() === '';
    return [
      ...missing.map((path) => ({ path, message: `is required for ${input.action}` })),
      ...(isBlank ? [{ path: 'text', message: 'must not be blank' }] : []),
      ...excess.map((path) => ({ path, message: `does not belong to ${input.action}` })),
    ];
  },
  async execute(input, { control }) {
    if (control === null) throw new ToolError('permission_denied', 'this session has no workers to manage');
    const id = input.id as string;
    switch (input.action) {
      case 'wait':
        return control.wait({
          ids: (input.ids as string[] | undefined) ?? null,
          for: input.for as 'any' | 'all',
          seconds: (input.seconds as number | undefined) ?? null,
        });
      case 'message':
        return control.message(id, input.text as string);
      case 'conclude':
        return control.conclude(id);
      case 'cancel':
        return control.cancel(id);
      default:
        return control.list();
    }
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
      ...CONTINUED,
      ...ISOLATED,
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
