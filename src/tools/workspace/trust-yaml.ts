// `.metis/trust.yaml`: which tools run without a question in a workspace, and which never do (09 §5.1).
import type { Document } from 'yaml';
import { z } from 'zod';
import { describeIssues } from '#core/policy/parsing/plain-issue.ts';
import type { Limits } from '#core/policy/parsing/text-limits.ts';
import { isMapping, readYaml } from '#core/policy/parsing/yaml.ts';
import { isSameTool } from '#core/policy/tools/tool-names.ts';
import type { Logger } from '#core/ports/logger.ts';
import type { Trust, TrustChange } from '#core/ports/workspace.ts';
import { describeProblem, readStart, replaceFile, runExclusive } from './descriptors.ts';

const MAX_BYTES = 64 * 1024;
const RELATIVE = '.metis/trust.yaml';
const LIMITS: Limits = { bytes: MAX_BYTES, depth: 16, nodes: 2000 };
/** The writer that keeps comments takes time by the square of the lines: it changes small files only. */
const MAX_REWRITE_BYTES = 16 * 1024;
/** Maximum reported problems of one file. */
const MAX_PROBLEMS = 5;

/** A tool's name, or a prefix with one final `*`. */
const entries = z
  .array(z.string().regex(/^[^*]+\*?$/, 'must be a tool name, or a prefix followed by a single final "*"'))
  .nullish();
const TrustSchema = z.strictObject({
  schema_version: z.literal(1).optional(),
  always_allow: entries,
  always_deny: entries,
});

const NOTHING: Trust = { always_allow: [], always_deny: [], malformed: false };
const MALFORMED: Trust = { ...NOTHING, malformed: true };

/** The file as it is now; a broken one allows nothing and is logged. */
export async function readTrust(root: string, log: Logger): Promise<Trust> {
  try {
    return (await load(root)).trust;
  } catch (error) {
    const path = `${root}/${RELATIVE}`;
    log.warn({ path, problem: describeProblem(error) }, 'trust.yaml is malformed: its entries do not apply');
    return MALFORMED;
  }
}

/** Implements `Workspaces.persistTrust`. */
export function persistTrust(
  root: string,
  { list, tool }: TrustChange,
  store: (can: boolean) => Promise<void>,
  log: Logger,
): Promise<boolean> {
  const path = `${root}/${RELATIVE}`;
  return runExclusive(path, async () => {
    let stored: Promise<void> | null = null;
    try {
      const { text: before, trust } = await load(root);
      if (before.length > MAX_REWRITE_BYTES)
        throw new Error(`has more than ${MAX_REWRITE_BYTES} bytes; edit it by hand`);
      // 72 files, needed only when a tool is trusted permanently.
      const yaml = await import('yaml');
      const document: Document = yaml.parseDocument(before);
      if (document.errors.length > 0) throw document.errors[0];
      const other = list === 'always_allow' ? 'always_deny' : 'always_allow';
      if (!document.has('schema_version')) document.set('schema_version', 1);
      setEntries(yaml, document, list, [...trust[list], tool]);
      setEntries(
        yaml,
        document,
        other,
        trust[other].filter((entry) => !isSameTool(entry, tool)),
      );
      const text = document.toString();
      const ready = async () => {
        // An editor or another server may have saved the file in the meantime: its text is kept.
        if ((await readTrustText(root)) !== before) throw new Error('was changed by another program at the same time');
        stored = store(true);
        return stored;
      };
      await replaceFile(root, RELATIVE, text, { sync: true, ready });
      return true;
    } catch (error) {
      await (stored ?? store(false));
      log.warn({ path, problem: describeProblem(error) }, 'trust.yaml could not be changed');
      return false;
    }
  });
}

/** Throws an error that describes the problem of the file. A missing or empty file has no entries. */
async function load(root: string): Promise<{ text: string; trust: Trust }> {
  const text = await readTrustText(root);
  const yaml = readYaml(text, LIMITS);
  if (!yaml.ok) throw new Error(yaml.error);
  if (yaml.value === null) return { text, trust: NOTHING };
  if (!isMapping(yaml.value)) throw new Error('the top level must be a mapping');
  const parsed = TrustSchema.safeParse(yaml.value);
  if (!parsed.success) {
    const problems = describeIssues(parsed.error, TrustSchema).map(
      ({ path, message }) => `${path.join('.')}: ${message}`,
    );
    throw new Error(problems.slice(0, MAX_PROBLEMS).join('; '));
  }
  const { always_allow, always_deny } = parsed.data;
  return { text, trust: { always_allow: always_allow ?? [], always_deny: always_deny ?? [], malformed: false } };
}

async function readTrustText(root: string): Promise<string> {
  // A link instead of the file or of `.metis` counts as a malformed file.
  const data = await readStart(`${root}/${RELATIVE}`, MAX_BYTES + 1);
  if (data === null) return '';
  if (data.length > MAX_BYTES) throw new Error(`has more than ${MAX_BYTES} bytes`);
  return new TextDecoder('utf-8', { fatal: true }).decode(data);
}

/** Sorted; an entry that stays keeps the comments it has. */
function setEntries(
  { isNode, isSeq }: Pick<typeof import('yaml'), 'isNode' | 'isSeq'>,
  document: Document,
  list: TrustChange['list'],
  names: readonly string[],
): void {
  const before = document.get(list);
  const kept = isSeq(before) ? before.items : [];
  const nodeOf = new Map(kept.map((item) => [isNode(item) ? item.toJS(document) : item, item]));
  const items = sortNames(names).map((name) => nodeOf.get(name) ?? document.createNode(name));
  if (isSeq(before) && kept.length > 0) before.items = items;
  else document.set(list, items);
}

function sortNames(names: readonly string[]): string[] {
  return [...new Set(names)].sort((a, b) => Buffer.compare(Buffer.from(a), Buffer.from(b)));
}
