// Turns the input of `delegate` into a spawn request: parsing, context references, size (04 §4, §4.1).

import {
  BACKGROUND,
  CHECKED,
  CONTINUED,
  type ContextEntry,
  type ContextItem,
  DELEGATED,
  type DelegateInput,
  DelegateInputSchema,
  delegatedContext,
  ISOLATED,
} from '#protocol/delegate.ts';
import type { Issue } from '#protocol/errors.ts';
import type { MessageId, SessionId, ToolUseId } from '#protocol/ids.ts';
import { err, ok, type Result } from '#protocol/result.ts';
import { joinLines } from '#protocol/text/plain-text.ts';
import type { JsonSchema } from '#protocol/tool.ts';
import { estimateText } from '../context/token-estimate.ts';
import { contextLine } from '../context/worker-brief.ts';
import { cutText } from '../cut.ts';
import { describeIssues } from '../parsing/plain-issue.ts';

const MAX_BODY_CHARS = 20_000;
const MAX_ALL_BODIES_CHARS = 200_000;
const TRUNCATED = '[truncated]';

/** Checks the form of a call; every issue has its path (`context.include[2].path`, `$` for the root). */
export function parseDelegateInput(input: unknown): Result<DelegateInput, Issue[]> {
  const parsed = DelegateInputSchema.safeParse(input);
  if (parsed.success) return ok(parsed.data);
  return err(describeIssues(parsed.error).map(({ path, message }) => ({ path: formatIssuePath(path), message })));
}

/** Fields of a call that was not checked: those that say which tools its worker gets. */
export function readCalledInput(input: Readonly<Record<string, unknown>>): {
  readonly allowed_tools: readonly string[] | null;
  readonly earlier: SessionId | null;
  /** Of `worker_call`; '' = none. */
  readonly worker: string;
} {
  const { allowed_tools, continue: earlier, worker } = input;
  return {
    allowed_tools: Array.isArray(allowed_tools) ? allowed_tools.filter((name) => typeof name === 'string') : null,
    earlier: typeof earlier === 'string' ? (earlier as SessionId) : null,
    worker: typeof worker === 'string' ? worker : '',
  };
}

/** The issue of an include item that does not resolve for the caller: foreign id, or a path outside the workspace. */
export function contextIssue(index: number): Issue {
  return { path: `context.include[${index}]`, message: `context_reference_invalid: include[${index}]` };
}

/** Texts that were read beforehand, by the ids in the items; null = not of the calling session. */
interface ContextTexts {
  message(id: MessageId): string | null;
  toolResult(id: ToolUseId): string | null;
}

/**
 * The entries of a worker's context in the planner's order: files stay references, everything else is inlined,
 * at most 20 000 characters each and 200 000 together.
 */
export function resolveContext(
  include: readonly ContextItem[],
  texts: ContextTexts,
): Result<readonly ContextEntry[], Issue[]> {
  const entries: ContextEntry[] = [];
  const issues: Issue[] = [];
  include.forEach((item, i) => {
    const entry = resolveItem(item, texts);
    if (entry === null) issues.push(contextIssue(i));
    else entries.push(entry);
  });
  const total = entries.reduce((sum, entry) => sum + (entry.text?.length ?? 0), 0);
  if (total > MAX_ALL_BODIES_CHARS) {
    issues.push({
      path: 'context.include',
      message: `the inlined texts have ${total} characters together, at most ${MAX_ALL_BODIES_CHARS} are allowed; leave items out or name files instead`,
    });
  }
  if (issues.length > 0) return err(issues);
  return ok(entries);
}

/** `task_size_tokens`: the estimate of the task and of what each entry puts into the prompt. */
export function estimateTaskSize(task: string, entries: readonly ContextEntry[]): number {
  return estimateText(task, ...entries.map((entry) => entry.text ?? contextLine(entry)));
}

function resolveItem(item: ContextItem, texts: ContextTexts): ContextEntry | null {
  switch (item.type) {
    case 'file':
      return createReference('file', item.path);
    case 'file_range':
      return createReference('file_range', `${item.path} lines ${item.lines[0]}-${item.lines[1]}`);
    case 'inline':
      return createInlined('inline', item.label, item.text);
    case 'message':
      return createInlined('message', item.message_id, texts.message(item.message_id));
    case 'tool_result':
      return createInlined('tool_result', item.tool_use_id, texts.toolResult(item.tool_use_id));
  }
}

/** Paths of the files that a worker is to read by itself. */
export function listReferredFiles(entries: readonly ContextEntry[]): string[] {
  const references = entries.filter(({ kind }) => kind === 'file' || kind === 'file_range');
  return references.map(({ kind, label }) => (kind === 'file' ? label : label.replace(/ lines \d+-\d+$/, '')));
}

function createReference(kind: ContextItem['type'], label: string): ContextEntry {
  return { kind, label: flattenLabel(label), text: null };
}

function createInlined(kind: ContextItem['type'], label: string, text: string | null): ContextEntry | null {
  if (text === null) return null;
  const body = text.length > MAX_BODY_CHARS ? `${cutText(text, MAX_BODY_CHARS)}${TRUNCATED}` : text;
  return { kind, label: flattenLabel(label), text: body };
}

// A label is one line of the prompt: it must not be able to forge another one.
function flattenLabel(label: string): string {
  return joinLines(label).trim();
}

function formatIssuePath(path: readonly PropertyKey[]): string {
  let out = '';
  for (const key of path) {
    if (typeof key === 'number') out += `[${key}]`;
    else out += `.${String(key)}`;
  }
  if (out === '') return '$';
  return out.replace(/^\./, '');
}

// Descriptions and JSON Schemas of `delegate` and `_request_context` for models (04 §4, §8).

export const DELEGATE_DESCRIPTION = `Hands one self-contained sub-task to a worker: a separate agent on a model of the tier you choose, in the same workspace, with your tools. The call returns when the worker is done; the result is the worker's final message. The block behind it, lines in square brackets, is the server's: its \`[worker ID; ...]\` names a worker whose work can be continued with a further task (\`continue\`), and what reading it again costs.

Delegate work that is mechanical or bulky and easy to state: searching, renaming, reformatting, summarising files, writing tests to a plan. Keep judgement, design and anything that needs this conversation for yourself. Do not delegate what one or two tool calls of your own would do.

A worker sees neither this conversation nor your earlier tool results. Say in \`task\` what to do, where, and what to report; name what else it needs in \`context\`. For independent sub-tasks emit several calls in one message: they run at the same time, so never let two of them change the same file, or give them \`isolation\` "worktree". Use \`background\` for long, independent work, where you have something else to do that does not need the result. Your answer ends your turn only when all such workers are done, and you read their results first.

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
    ...ISOLATED,
    ...CHECKED,
    ...CONTINUED,
    background: BACKGROUND,
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
