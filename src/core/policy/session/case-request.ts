// A model's request in the form in which cases hold it: without what differs from run to run by nature (21 §3).

import type { StoredMessage } from '#protocol/message.ts';
import type { CanonicalRequest } from '#protocol/model-call.ts';
import type { CaseHead, CaseMessage } from '#protocol/what-if/case.ts';

export interface CaseRequest {
  readonly head: CaseHead;
  readonly messages: readonly CaseMessage[];
}

export function describeCaseRequest(request: CanonicalRequest): CaseRequest {
  return { head: describeHead(request), messages: request.messages.map(describeMessage) };
}

export function describeHead(request: CanonicalRequest): CaseHead {
  const { model, effort, system_prompt, system_prompt_volatile, tools, tool_choice = null } = request;
  const { max_output_tokens, output_schema, cache_ttl } = request;
  return {
    model: model.id,
    effort,
    system_prompt,
    system_prompt_volatile,
    tools: tools.map(({ name, description, input_schema }) => ({ name, description, input_schema })),
    tool_choice,
    max_output_tokens,
    output_schema,
    cache_ttl,
  };
}

export function describeMessage({ role, content }: StoredMessage): CaseMessage {
  return { role, content };
}

export interface Difference {
  /** `messages[7].content[0].text` */
  readonly path: string;
  /** Lines of the first value with `-`, of the second with `+`. */
  readonly diff: string;
}

/** Null where the values are equal. */
export function findDifference(before: unknown, now: unknown, path = ''): Difference | null {
  if (Array.isArray(before) && Array.isArray(now)) return findInArrays(before, now, path);
  if (isObject(before) && isObject(now)) {
    for (const key of [...new Set([...Object.keys(before), ...Object.keys(now)])]) {
      const found = findDifference(before[key], now[key], path === '' ? key : `${path}.${key}`);
      if (found !== null) return found;
    }
    return null;
  }
  if (before === now || JSON.stringify(before) === JSON.stringify(now)) return null;
  return { path, diff: diffTexts(showValue(before), showValue(now)) };
}

function findInArrays(before: readonly unknown[], now: readonly unknown[], path: string): Difference | null {
  for (let at = 0; at < Math.max(before.length, now.length); at += 1) {
    const found = findDifference(before[at], now[at], `${path}[${at}]`);
    if (found !== null) return found;
  }
  return null;
}

function isObject(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

function showValue(value: unknown): string {
  if (value === undefined) return '';
  if (typeof value === 'string') return value;
  return JSON.stringify(value, null, 1);
}

const MAX_LINES = 40;
const CONTEXT = 2;

/** The lines between what both texts begin and end with, with two lines around them. */
export function diffTexts(before: string, now: string): string {
  const [old, fresh] = [before, now].map((text) => (text === '' ? [] : text.split('\n'))) as [string[], string[]];
  let start = 0;
  while (start < old.length && start < fresh.length && old[start] === fresh[start]) start += 1;
  let end = 0;
  while (end < old.length - start && end < fresh.length - start && old.at(-1 - end) === fresh.at(-1 - end)) end += 1;
  const mark = (sign: string, lines: readonly string[]) => {
    const more = lines.length - MAX_LINES;
    const shown = lines.slice(0, MAX_LINES).map((line) => `${sign} ${line}`);
    return more > 0 ? [...shown, `${sign} … ${more} more lines`] : shown;
  };
  return [
    ...mark(' ', old.slice(Math.max(0, start - CONTEXT), start)),
    ...mark('-', old.slice(start, old.length - end)),
    ...mark('+', fresh.slice(start, fresh.length - end)),
    ...mark(' ', old.slice(old.length - end, old.length - end + CONTEXT)),
  ].join('\n');
}
