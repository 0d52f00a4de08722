// JSON from outside: the limits are checked on the text, before a value is made of it.
import secureJson from 'secure-json-parse';
import { err, ok, type Result } from '#protocol/result.ts';
import { readErrorMessage } from '#protocol/text/error-message.ts';
import { joinLines } from '#protocol/text/plain-text.ts';
import { BODY, type Limits, lineAt, tooDeep, tooLong, tooMany, tooManyKeys } from './text-limits.ts';

/** Parses within the limits. The error is one line that goes after the name of the text. */
export function readJson(text: string, limits: Limits): Result<unknown, string> {
  const fault = faultOfJson(text, limits);
  if (fault !== null) return err(fault);
  try {
    return ok(JSON.parse(text));
  } catch (error) {
    return err(`is not valid JSON: ${joinLines(readErrorMessage(error))}`);
  }
}

/** The limit a JSON text breaks, as the end of a sentence; null = none, which does not mean that it is JSON. */
export function faultOfJson(text: string, limits: Limits): string | null {
  if (text.length > limits.bytes || Buffer.byteLength(text) > limits.bytes) return tooLong(limits);
  let depth = 0;
  let nodes = 1;
  let keys = 0;
  const { keys: mostKeys = Number.POSITIVE_INFINITY } = limits;
  for (let at = 0; at < text.length; at++) {
    switch (text.charCodeAt(at)) {
      case 0x22: // "
        at = endOfString(text, at);
        break;
      case 0x5b: // [
      case 0x7b: // {
        if (++depth > limits.depth) return tooDeep(limits, lineAt(text, at));
        nodes++;
        break;
      case 0x5d: // ]
      case 0x7d: // }
        depth--;
        break;
      case 0x2c: // ,
        nodes++;
        break;
      case 0x3a: // :
        if (++keys > mostKeys) return tooManyKeys(mostKeys);
        break;
    }
    if (nodes > limits.nodes) return tooMany(limits, lineAt(text, at));
  }
  return null;
}

/** The place of the closing quote, or the text's end. */
function endOfString(text: string, start: number): number {
  for (let end = text.indexOf('"', start + 1); end >= 0; end = text.indexOf('"', end + 1)) {
    let backslashes = 0;
    while (text.charCodeAt(end - 1 - backslashes) === 0x5c) backslashes++;
    if (backslashes % 2 === 0) return end;
  }
  return text.length;
}

// The JSON body of a request, within its limits.

/** A key `__proto__`, or a `prototype` in a `constructor`, is no valid JSON either. Error: the end of a sentence. */
export function readBody(bytes: Buffer): Result<unknown, string> {
  const text = bytes.toString('utf8');
  const fault = faultOfJson(text, BODY);
  if (fault !== null) return err(fault);
  try {
    return ok(secureJson.parse(text));
  } catch {
    return err('is not valid JSON');
  }
}
