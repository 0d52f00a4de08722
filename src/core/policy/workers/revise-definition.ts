// Writes a definition into an existing file; comments and unchanged parts are preserved (13 §3.4).
// Its own file, because `yaml` is loaded only for a saved worker.
import { type Document, isMap, parseDocument } from 'yaml';
import { canonicalJson } from '#protocol/text/canonical-json.ts';
import type { WorkerDefinition } from '#protocol/worker-definition.ts';
import { OUTSIDE } from '../parsing/text-limits.ts';
import { isMapping, readYaml } from '../parsing/yaml.ts';
import { readDefinition } from './read-definition.ts';
import { formatDefinition } from './write-definition.ts';

type Fields = Readonly<Record<string, unknown>>;

/** The writer that keeps comments slows down with the square of the lines. */
const MAX_CHARS = 32 * 1024;
/** Another spelling of these two lists. */
const OLD_LISTS = ['allow_workers', 'tools'];

/**
 * The definition as YAML.
 * @param before of the file that it replaces: only what differs is changed in it, if it can be
 */
export function reviseYaml(before: string, definition: WorkerDefinition): string {
  const plain = formatDefinition(definition);
  if (!before.includes('#') || before.length > MAX_CHARS) return plain;
  const parseText = (text: string) =>
    readDefinition(text, { name: definition.name, file: null, format: 'yaml' }).definition;
  const old = parseText(before);
  const written = readYaml(plain, OUTSIDE);
  if (old === null || !written.ok || !isMapping(written.value)) return plain;
  const document: Document = parseDocument(before);
  if (document.errors.length > 0 || !isMap(document.contents)) return plain;
  const spread = document.has('toolsets') && OLD_LISTS.some((key) => isDifferent(old, definition, key));
  if (spread) document.delete('toolsets');
  // If the file has a form that cannot be changed in place, the new content replaces it.
  try {
    applyChanges(document, [], {
      old: spread ? { ...old, allow_workers: null, tools: null } : old,
      definition,
      written: written.value,
    });
    const text = document.toString({ lineWidth: 0 });
    if (isSame(parseText(text), definition)) return text;
    return plain;
  } catch {
    return plain;
  }
}

/** @param as `written`: the new content without what is standard */
function applyChanges(
  document: Document,
  path: readonly string[],
  as: { readonly old: unknown; readonly definition: Fields; readonly written: Fields },
): void {
  const { definition, written } = as;
  const old = isMapping(as.old) ? as.old : {};
  for (const key of new Set([...Object.keys(old), ...Object.keys(definition)])) {
    if (!isDifferent(old, definition, key)) continue;
    const at = [...path, key];
    const [value, inner] = [written[key], definition[key]];
    if (value === undefined) document.deleteIn(at);
    else if (isMapping(value) && isMapping(inner) && isMap(document.getIn(at)))
      applyChanges(document, at, { old: old[key], definition: inner, written: value });
    else document.setIn(at, value);
  }
}

function isDifferent(a: Fields, b: Fields, key: string): boolean {
  return !isSame(a[key], b[key]);
}

function isSame(a: unknown, b: unknown): boolean {
  return a === b || (a !== undefined && b !== undefined && canonicalJson(a) === canonicalJson(b));
}
