// What a call answers: within the sizes that clients take (19 §3.2).
import type { CallToolResult } from '@modelcontextprotocol/server';
import type { DelegationResult } from '#client/client.ts';

/** About 25,000 tokens, which is what clients pass on to their model. */
const MAX_CHARS = 80_000;

/** What a delegation came to: its structured result, and its output as text. */
export function delegated(structured: DelegationResult): CallToolResult {
  const { success, output, error } = structured;
  const said = typeof output === 'string' ? output : JSON.stringify(output);
  const size = JSON.stringify(structured).length;
  return {
    content: [{ type: 'text', text: cut(success ? said : [error, said].filter(Boolean).join('\n'), MAX_CHARS) }],
    structuredContent: size <= MAX_CHARS ? structured : { ...structured, output: within(said, structured) },
    isError: !success,
  };
}

export function running(worker_session_id: string | null): CallToolResult {
  return structuredResult({ status: 'running', worker_session_id });
}

export function structuredResult(value: Record<string, unknown>): CallToolResult {
  return { content: [{ type: 'text', text: cut(JSON.stringify(value), MAX_CHARS) }], structuredContent: value };
}

/** Begins with the code, as programs look for it. */
export function failed(code: string, message: string): CallToolResult {
  return { content: [{ type: 'text', text: cut(`${code}: ${message}`, MAX_CHARS) }], isError: true };
}

/** So much of the text that the whole is within the size, however it has to be escaped. */
function within(text: string, whole: Readonly<Record<string, unknown>>): string {
  const sizeWith = (chars: number) => JSON.stringify({ ...whole, output: cut(text, chars) }).length;
  let least = 0;
  let most = MAX_CHARS;
  while (least < most) {
    const middle = Math.ceil((least + most) / 2);
    if (sizeWith(middle) <= MAX_CHARS) least = middle;
    else most = middle - 1;
  }
  return cut(text, least);
}

function cut(text: string, chars: number): string {
  if (text.length <= chars) return text;
  const marker = `\n[cut: ${text.length} characters in all]`;
  const kept = text.slice(0, Math.max(0, chars - marker.length));
  // Half a character is none.
  return `${/[\ud800-\udbff]$/.test(kept) ? kept.slice(0, -1) : kept}${marker}`;
}
