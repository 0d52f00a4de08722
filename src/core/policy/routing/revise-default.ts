// Writes the default model into the text of a workspace's routing file; every other byte stays as it is (03 §6.5).
// Its own file, because `yaml` is loaded only where a file is written.
import { isMap, isScalar, parseDocument } from 'yaml';
import { err, ok, type Result } from '#protocol/result.ts';
import { canonicalJson } from '#protocol/text/canonical-json.ts';
import { isMapping } from '../parsing/yaml.ts';
import { readPolicy } from './policy-file.ts';

/** A file that a person writes is far smaller. */
const MAX_CHARS = 64 * 1024;

/** @param before a valid file; '' = none. The error explains why the text cannot be changed in place. */
export function reviseDefault(before: string, model: string): Result<string, string> {
  if (before.length > MAX_CHARS) return err(`has more than ${MAX_CHARS} characters`);
  const text = placeDefault(before, model);
  // Whatever else the file holds must mean the same as before.
  if (text === null || readValue(text) !== readValue(before, model))
    return err('has a form that is not changed in place');
  return ok(text);
}

/** Null where the value is more than a plain text, such as an anchor. */
function placeDefault(before: string, model: string): string | null {
  const { contents, errors } = parseDocument(before);
  if (errors.length > 0) return null;
  const scalar = JSON.stringify(model);
  const written = /^[\w.:/-]+$/.test(model) ? model : scalar;
  if (isMap(contents) && contents.has('default')) {
    const value = contents.get('default', true);
    if (!isScalar(value) || value.anchor !== undefined || value.range == null) return null;
    const [start, end] = value.range;
    const space = start === end ? ' ' : '';
    return `${before.slice(0, start)}${space}${written}${before.slice(end)}`;
  }
  const lineBreak = before.includes('\r\n') ? '\r\n' : '\n';
  const open = before === '' || before.endsWith('\n') ? '' : lineBreak;
  return `${before}${open}default: ${written}${lineBreak}`;
}

/** @param model in place of the file's own `default` */
function readValue(text: string, model?: string): string | null {
  const read = readPolicy(text);
  if (!read.ok) return null;
  const value = read.value ?? {};
  if (!isMapping(value)) return null;
  return canonicalJson(model === undefined ? value : { ...value, default: model });
}
