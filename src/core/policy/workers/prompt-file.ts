// A worker's prompt in a file of its own: raw text, or a template that knows one thing, to put in another file (13 §3.3).
import { err, ok, type Result } from '#protocol/result.ts';

/** In this order; the first that exists counts. */
export const PROMPT_SUFFIXES = ['jinja2', 'j2', 'txt', 'md'] as const;

export type PromptPart =
  | { readonly kind: 'text'; readonly text: string }
  /** Path below the folder of prompts. */
  | { readonly kind: 'file'; readonly path: string };

const TAG = /\{\{\s*file\(\s*(?:"([^"\n]*)"|'([^'\n]*)')\s*\)\s*\}\}/g;
const OTHER = /\{\{|\{%|\{#/;
const MAX_PARTS = 64;

/** What a template is made of. What `file` brings in is not looked at again. */
export function templateParts(text: string): Result<readonly PromptPart[], string> {
  const parts: PromptPart[] = [];
  let last = 0;
  for (const match of text.matchAll(TAG)) {
    if (match.index > last) parts.push({ kind: 'text', text: text.slice(last, match.index) });
    parts.push({ kind: 'file', path: match[1] ?? match[2] ?? '' });
    last = match.index + match[0].length;
  }
  if (last < text.length) parts.push({ kind: 'text', text: text.slice(last) });
  const odd = parts.find((part) => part.kind === 'text' && OTHER.test(part.text));
  if (odd?.kind === 'text')
    return err(`unsupported_template_syntax: only {{ file("...") }} is known, not ${JSON.stringify(shown(odd.text))}`);
  return parts.length > 2 * MAX_PARTS ? err(`brings in more than ${MAX_PARTS} files`) : ok(parts);
}

function shown(text: string): string {
  const at = text.search(OTHER);
  return text.slice(at, at + 40).split('\n', 1)[0] ?? '';
}
