// The JSON body of a request, within its limits.
import secureJson from 'secure-json-parse';
import { err, ok, type Result } from '#protocol/result.ts';
import { faultOfJson } from './json.ts';
import { BODY } from './limits.ts';

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
