// Estimates the size of a request for routing and compaction; money uses an upper bound instead (10 §1, 14 §2).
import { codePoints } from './message-size.ts';
import { type RequestParts, type SentParts, schemaText } from './request-prompt.ts';
import { measureHistory } from './session-history.ts';

// Tools never change, so each is measured once.
const toolSizes = new WeakMap<RequestParts['tools'][number], number>();

/** Tokens of the texts together: `max(1, floor(code points / 4))`. */
export function estimateText(...texts: readonly string[]): number {
  return tokens(texts.reduce((sum, text) => sum + codePoints(text), 0));
}

/** Tokens of a request by the same estimate. Tool names are not counted. */
export function estimateRequest(request: SentParts): number {
  let size = codePoints(request.system_prompt ?? '') + codePoints(request.system_prompt_volatile ?? '');
  size += measureHistory(request.messages).size;
  for (const tool of request.tools) size += toolSize(tool);
  if (request.output_schema !== null) size += codePoints(schemaText(request.output_schema));
  return tokens(size);
}

function tokens(size: number): number {
  return Math.max(1, Math.floor(size / 4));
}

function toolSize(tool: RequestParts['tools'][number]): number {
  const known = toolSizes.get(tool);
  if (known !== undefined) return known;
  const size = codePoints(tool.description) + codePoints(schemaText(tool.input_schema));
  toolSizes.set(tool, size);
  return size;
}
