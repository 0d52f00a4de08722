// The tools of the MCP server and the form of their results (19 §3.2). The Metis server validates what a call contains.
import type { CallToolResult, Tool } from '@modelcontextprotocol/server';
import type { DelegationResult, WorkerInfo } from '#client/client.ts';
import { CHECKED, CONTINUED, DELEGATED, delegatedContext, ISOLATED } from '#protocol/delegate.ts';

const WAIT = {
  type: 'integer',
  minimum: 1,
  maximum: 3600,
  description:
    'Seconds to wait for the result, for clients that end calls early. When they are over the answer is {"status": "running", "worker_session_id"}; ask `workers` for the result.',
};

/** From outside a worker that still runs cannot be continued. */
const CONTINUABLE = {
  ...CONTINUED,
  continue: {
    type: 'string',
    description:
      '`worker_session_id` of a worker that has ended: the new one starts with its prompt and messages and then gets this task.',
  },
};

const CHANGED = 'What the worker changed in the workspace.';
const DROPPED = 'Tools that were asked for, or are those of the session, and that the worker did not get.';
/** A DelegateResult, or the worker's id while it still runs. */
const RESULT = {
  type: 'object' as const,
  properties: {
    status: { type: 'string', enum: ['running'], description: 'Only while the worker still runs.' },
    success: { type: 'boolean' },
    output: { type: ['string', 'object'], description: 'What the worker answered.' },
    error: { type: ['string', 'null'], description: 'Begins with the kind of failure.' },
    usage_summary: { type: 'object', description: 'Model, tokens, tool calls, cost_usd and time.' },
    worker_session_id: { type: ['string', 'null'] },
    dropped_tools: { type: 'array', items: { type: 'string' }, description: DROPPED },
    changed_files: { type: 'array', items: { type: 'object' }, description: CHANGED },
    changed_files_truncated: { type: 'boolean' },
    shell_used: { type: 'boolean' },
    isolation: { type: 'string', description: 'Where it worked: shared or worktree.' },
    applied: { type: ['boolean', 'null'], description: 'Whether the changes of a worktree are in the workspace.' },
    conflicts: { type: 'array', items: { type: 'string' }, description: 'Paths for which they are not.' },
    apply_error: { type: ['string', 'null'], description: 'Why they could not be recorded or written.' },
    check: { type: ['string', 'null'], description: 'The check that decided.' },
    attempts: { type: 'integer', description: 'How often it was run.' },
    verified: { type: ['boolean', 'null'], description: 'Whether it passed; null = it was not run.' },
    protected_changes: { type: 'array', items: { type: 'string' }, description: 'Files whose changes were dropped.' },
    overlaps: { type: 'array', items: { type: 'string' } },
  },
  required: ['worker_session_id'],
};

/** A client of 2025-11-25 may call it as a task. */
const TASK = { taskSupport: 'optional' as const };

const DELEGATE: Tool = {
  name: 'delegate',
  title: 'Delegate to a worker',
  description: `Hands one self-contained task to a worker: a separate agent on a model of the tier you choose, with file tools in this workspace. The call returns when the worker is done; the result is its final message.

Delegate what is mechanical or bulky and easy to state: searching, renaming, summarising files, writing tests to a plan. A worker sees nothing of this conversation: say in \`task\` what to do, where, and what to report, and name in \`context\` what else it needs. Independent tasks may run at the same time; never let two of them change the same file, or give them \`isolation\` "worktree".`,
  inputSchema: {
    type: 'object',
    additionalProperties: false,
    required: ['tier', 'task'],
    properties: {
      ...DELEGATED,
      ...ISOLATED,
      ...CHECKED,
      context: delegatedContext({
        description:
          'A plain string is a note. {"type": "file", "path"} and {"type": "file_range", "path", "lines": [from, to]} name files of the workspace, which the worker reads itself; {"type": "inline", "label", "text"} is given as it is.',
        items: { anyOf: [{ type: 'string' }, { type: 'object' }] },
      }),
      output_schema: {
        type: 'object',
        description: 'JSON Schema with root type "object": the worker must answer with one object valid against it.',
      },
      allowed_tools: {
        type: 'array',
        items: { type: 'string' },
        description: 'The tools the worker may use; only narrows, an empty list leaves none.',
      },
      max_tokens: { type: 'integer', minimum: 1, description: "Limit on the worker's output tokens." },
      timeout_seconds: { type: 'integer', minimum: 1, maximum: 3600, description: 'When the worker is stopped.' },
      max_cost_usd: { type: 'string', description: 'Limit on its cost in US dollars, such as "0.25".' },
      ...CONTINUABLE,
      wait_seconds: WAIT,
    },
  },
  outputSchema: RESULT,
  execution: TASK,
};

/** The arguments that are passed on to the server. */
export const DELEGATE_KEYS = listPassedKeys(DELEGATE);

const WORKERS: Tool = {
  name: 'workers',
  title: 'Workers and their results',
  description:
    'Lists what was delegated here, with status and cost. With `worker_session_id` it gives that worker and, once it is done, its result.',
  inputSchema: {
    type: 'object',
    additionalProperties: false,
    properties: { worker_session_id: { type: 'string' }, wait_seconds: WAIT },
  },
  annotations: { readOnlyHint: true },
};

const COST: Tool = {
  name: 'cost',
  title: 'What was spent',
  description: 'What this session and its workers have cost in US dollars, and what is left of the limit.',
  inputSchema: { type: 'object', additionalProperties: false, properties: {} },
  outputSchema: {
    type: 'object',
    properties: {
      own_usd: { type: 'string' },
      workers_usd: { type: 'string' },
      total_usd: { type: 'string' },
      remaining_usd: { type: ['string', 'null'], description: 'Null without a limit.' },
    },
    required: ['own_usd', 'workers_usd', 'total_usd', 'remaining_usd'],
  },
  annotations: { readOnlyHint: true },
};

/** Tools that answer at once and are never tasks. */
export const REPORTS: readonly string[] = [WORKERS.name, COST.name];

/** A named worker with one of these names is available through the server's own API only. */
export const OWN_NAMES: readonly string[] = [DELEGATE.name, WORKERS.name, COST.name];

export function listTools(workers: readonly WorkerInfo[]): Tool[] {
  const named = workers.filter(({ name }) => !OWN_NAMES.includes(name)).map(workerTool);
  return [DELEGATE, ...named, WORKERS, COST];
}

function workerTool({
  name,
  description,
  accepts_attachments,
}: Pick<WorkerInfo, 'name' | 'description' | 'accepts_attachments'>): Tool {
  const attachments = {
    attachments: { type: 'array', items: { type: 'string' }, description: 'Files of the workspace that it is given.' },
  };
  return {
    name,
    description: description ?? `Hands a task to the worker '${name}'.`,
    inputSchema: {
      type: 'object',
      additionalProperties: false,
      required: ['input'],
      properties: {
        input: { type: 'string', minLength: 1, description: 'What it is to do.' },
        ...(accepts_attachments ? attachments : {}),
        ...CONTINUABLE,
        ...ISOLATED,
        wait_seconds: WAIT,
      },
    },
    outputSchema: RESULT,
    execution: TASK,
  };
}

/** Of the tool of any named worker; the server refuses attachments where the worker takes none. */
export const NAMED_KEYS = listPassedKeys(workerTool({ name: '', description: null, accepts_attachments: true }));

function listPassedKeys({ inputSchema }: Tool): readonly string[] {
  return Object.keys(inputSchema.properties ?? {}).filter((key) => key !== 'wait_seconds');
}

/** About 25,000 tokens, which is what clients pass on to their model. */
const MAX_CHARS = 80_000;

/** The result of a delegation: structured, and its output as text. */
export function toDelegationResult(structured: DelegationResult): CallToolResult {
  const { success, output, error } = structured;
  const text = typeof output === 'string' ? output : JSON.stringify(output);
  const size = JSON.stringify(structured).length;
  return {
    content: [{ type: 'text', text: truncate(success ? text : [error, text].filter(Boolean).join('\n'), MAX_CHARS) }],
    structuredContent: size <= MAX_CHARS ? structured : { ...structured, output: truncateToFit(text, structured) },
    isError: !success,
  };
}

export function toRunningResult(worker_session_id: string | null): CallToolResult {
  return toStructuredResult({ status: 'running', worker_session_id });
}

export function toStructuredResult(value: Record<string, unknown>): CallToolResult {
  return { content: [{ type: 'text', text: truncate(JSON.stringify(value), MAX_CHARS) }], structuredContent: value };
}

/** Begins with the code, as programs look for it. */
export function toErrorResult(code: string, message: string): CallToolResult {
  return { content: [{ type: 'text', text: truncate(`${code}: ${message}`, MAX_CHARS) }], isError: true };
}

/** As much of the text as keeps the whole result within the limit once it is escaped. */
function truncateToFit(text: string, whole: Readonly<Record<string, unknown>>): string {
  const sizeWith = (chars: number) => JSON.stringify({ ...whole, output: truncate(text, chars) }).length;
  let least = 0;
  let most = MAX_CHARS;
  while (least < most) {
    const middle = Math.ceil((least + most) / 2);
    if (sizeWith(middle) <= MAX_CHARS) least = middle;
    else most = middle - 1;
  }
  return truncate(text, least);
}

function truncate(text: string, chars: number): string {
  if (text.length <= chars) return text;
  const marker = `\n[cut: ${text.length} characters in all]`;
  const kept = text.slice(0, Math.max(0, chars - marker.length));
  // A surrogate pair must not be split.
  return `${/[\ud800-\udbff]$/.test(kept) ? kept.slice(0, -1) : kept}${marker}`;
}
