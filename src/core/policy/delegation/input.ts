// From the input of `delegate` to what a spawn needs: parsing, context references, size (04 §4, §4.1).
import { type ContextEntry, type ContextItem, type DelegateInput, DelegateInputSchema } from '#protocol/delegate.ts';
import type { Issue } from '#protocol/errors.ts';
import type { MessageId, ToolUseId } from '#protocol/ids.ts';
import { err, ok, type Result } from '#protocol/result.ts';
import { estimateText } from '../context/estimate.ts';
import { contextLine } from '../context/worker-brief.ts';
import { cutText } from '../cut.ts';
import { plainIssues } from '../parsing/plain-issue.ts';

const MAX_BODY_CHARS = 20_000;
const MAX_ALL_BODIES_CHARS = 200_000;
const TRUNCATED = '[truncated]';

/** Checks the form of a call; every fault with its path (`context.include[2].path`, `$` for the root). */
export function parseDelegateInput(input: unknown): Result<DelegateInput, Issue[]> {
  const parsed = DelegateInputSchema.safeParse(input);
  if (parsed.success) return ok(parsed.data);
  return err(plainIssues(parsed.error).map(({ path, message }) => ({ path: dotted(path), message })));
}

/** The issue of an include item that does not resolve for the caller: foreign id, or a path outside the workspace. */
export function contextIssue(index: number): Issue {
  return { path: `context.include[${index}]`, message: `context_reference_invalid: include[${index}]` };
}

/** Texts fetched beforehand for the ids that the items name; null = not the calling session's. */
export interface ContextTexts {
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
  return issues.length > 0 ? err(issues) : ok(entries);
}

/** `task_size_tokens`: the estimate of the task and of what each entry puts into the prompt. */
export function taskSize(task: string, entries: readonly ContextEntry[]): number {
  return estimateText(task, ...entries.map((entry) => entry.text ?? contextLine(entry)));
}

function resolveItem(item: ContextItem, texts: ContextTexts): ContextEntry | null {
  switch (item.type) {
    case 'file':
      return reference('file', item.path);
    case 'file_range':
      return reference('file_range', `${item.path} lines ${item.lines[0]}-${item.lines[1]}`);
    case 'inline':
      return inlined('inline', item.label, item.text);
    case 'message':
      return inlined('message', item.message_id, texts.message(item.message_id));
    case 'tool_result':
      return inlined('tool_result', item.tool_use_id, texts.toolResult(item.tool_use_id));
  }
}

/** Paths of the files that a worker is to read by itself. */
export function referredFiles(entries: readonly ContextEntry[]): string[] {
  const references = entries.filter(({ kind }) => kind === 'file' || kind === 'file_range');
  return references.map(({ kind, label }) => (kind === 'file' ? label : label.replace(/ lines \d+-\d+$/, '')));
}

function reference(kind: ContextItem['type'], label: string): ContextEntry {
  return { kind, label: oneLine(label), text: null };
}

function inlined(kind: ContextItem['type'], label: string, text: string | null): ContextEntry | null {
  if (text === null) return null;
  const body = text.length > MAX_BODY_CHARS ? `${cutText(text, MAX_BODY_CHARS)}${TRUNCATED}` : text;
  return { kind, label: oneLine(label), text: body };
}

// A label is one line of the prompt: it must not be able to forge another one.
function oneLine(label: string): string {
  return label.replace(/\s+/g, ' ').trim();
}

function dotted(path: readonly PropertyKey[]): string {
  let out = '';
  for (const key of path) {
    if (typeof key === 'number') out += `[${key}]`;
    else out += out === '' ? String(key) : `.${String(key)}`;
  }
  return out === '' ? '$' : out;
}
