// What a model reads about `delegate` and `_request_context`: descriptions and JSON Schemas (04 §4, §8).
import { DELEGATED, delegatedContext } from '#protocol/delegate.ts';
import type { JsonSchema } from '#protocol/tool.ts';

export const DELEGATE_DESCRIPTION = `Hands one self-contained sub-task to a worker: a separate agent on a model of the tier you choose, in the same workspace, with your tools. The call returns when the worker is done; the result is the worker's final message. Blocks in square brackets behind it are notes of the server.

Delegate work that is mechanical or bulky and easy to state: searching, renaming, reformatting, summarising files, writing tests to a plan. Keep judgement, design and anything that needs this conversation for yourself. Do not delegate what one or two tool calls of your own would do.

A worker sees neither this conversation nor your earlier tool results. Say in \`task\` what to do, where, and what to report; name what else it needs in \`context\`. For independent sub-tasks emit several calls in one message: they run at the same time, so never let two of them change the same file.

A failed call returns JSON with \`error\` and \`output\`. On \`insufficient_context\` call again with the missing items added to \`context.include\`. On \`cancelled_by_user\` do not start the same work again unless the user asks for it. On any other error retry with a clearer task or another tier, or do the work yourself.`;

export const DELEGATE_JSON_SCHEMA: JsonSchema = {
  type: 'object',
  additionalProperties: false,
  required: ['tier', 'task'],
  properties: {
    ...DELEGATED,
    context: delegatedContext({
      description: 'Items for mode explicit, at most 50. A plain string is a note.',
      items: {
        anyOf: [
          { type: 'string' },
          {
            type: 'object',
            additionalProperties: false,
            required: ['type'],
            properties: {
              type: {
                type: 'string',
                enum: ['file', 'file_range', 'tool_result', 'message', 'inline'],
                description:
                  'file needs `path`; file_range needs `path` and `lines`; tool_result needs `tool_use_id`; message needs `message_id`; inline needs `label` and `text`. Files are passed by reference: the worker reads them itself.',
              },
              path: { type: 'string', minLength: 1, description: 'Path inside the workspace.' },
              lines: {
                type: 'array',
                minItems: 2,
                maxItems: 2,
                items: { type: 'integer', minimum: 1 },
                description: 'First and last line, counted from 1, both included.',
              },
              tool_use_id: { type: 'string', description: 'Id of one of your own tool calls, tu_...' },
              message_id: { type: 'string', description: 'Id of a message of this conversation.' },
              label: { type: 'string', description: 'What the text is.' },
              text: { type: 'string', description: 'The text itself, cut at 20000 characters.' },
            },
          },
        ],
      },
    }),
    output_schema: {
      type: ['object', 'null'],
      description:
        'JSON Schema (2020-12) with root type "object". The worker must then answer with one JSON object valid against it.',
    },
    allowed_tools: {
      type: ['array', 'null'],
      items: { type: 'string' },
      description:
        'Names of the tools the worker may use. Default: yours. Only narrows; an empty list leaves it without tools.',
    },
    max_tokens: {
      type: ['integer', 'null'],
      minimum: 1,
      description: 'Limit on the output tokens of all the model calls of the worker together. Default: none.',
    },
    timeout_seconds: {
      type: ['integer', 'null'],
      minimum: 1,
      maximum: 3600,
      description: 'Seconds after which the worker is stopped. Default: set by the server.',
    },
    max_cost_usd: {
      type: ['string', 'null'],
      pattern: '^(0|[1-9]\\d{0,5})(\\.\\d{1,6})?$',
      description: 'Limit on what the worker may cost, in US dollars as a decimal string such as "0.25".',
    },
  },
};

export const REQUEST_CONTEXT_DESCRIPTION =
  'Ends your work and asks the planner for what you lack. Use it once, only when your tools cannot supply a missing fact and you cannot do the task without it. List everything you need; the planner starts a new worker with it.';

export const REQUEST_CONTEXT_JSON_SCHEMA: JsonSchema = {
  type: 'object',
  additionalProperties: false,
  required: ['summary', 'missing'],
  properties: {
    summary: {
      type: 'string',
      minLength: 1,
      maxLength: 500,
      description: 'One sentence: what keeps you from doing the task.',
    },
    missing: {
      type: 'array',
      minItems: 1,
      maxItems: 20,
      description: 'Everything you need, at most 20 items.',
      items: {
        type: 'object',
        additionalProperties: false,
        required: ['type', 'ref', 'hint'],
        properties: {
          type: {
            type: 'string',
            enum: ['file', 'file_range', 'message', 'tool_result', 'decision', 'other'],
            description: 'The kind of thing that is missing.',
          },
          ref: { type: 'string', description: 'A path, a message id, a tool call id, or a label.' },
          hint: { type: 'string', description: 'What you would do with it.' },
        },
      },
    },
  },
};
