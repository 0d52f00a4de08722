// What `metis prices update` and `metis models update` took: a file each in the data folder, always whole (22 §5).
import fs from 'node:fs';
import path from 'node:path';
import { OWN_FILE } from '#core/policy/parsing/text-limits.ts';
import { isMapping, readYaml, toMapping } from '#core/policy/parsing/yaml.ts';
import { StartupError } from '#protocol/errors.ts';
import { makeFolder } from '#protocol/folder.ts';
import { removeDraft, removeLeftDrafts } from './drafts.ts';

export type UpdateKind = 'prices' | 'models';

interface UpdateText {
  readonly file: string;
  readonly text: string;
}

export function getUpdateFile(dataDir: string, kind: UpdateKind): string {
  return path.join(dataDir, `${kind}-update.json`);
}

/** Null = there is none. Throws `StartupError` for one that cannot be read. */
export function readUpdate(dataDir: string, kind: UpdateKind): UpdateText | null {
  const file = getUpdateFile(dataDir, kind);
  try {
    return { file, text: fs.readFileSync(file, 'utf8') };
  } catch (cause) {
    const { code } = cause as NodeJS.ErrnoException;
    if (code === 'ENOENT' || code === 'ENOTDIR') return null;
    throw new StartupError('config_invalid', [`${file}: cannot be read: ${code}`]);
  }
}

/**
 * Replaces the file: a reader has the old text or the new one, whole, also after a crash in between. Throws
 * `StartupError` where it cannot be written.
 */
export function writeUpdate(dataDir: string, kind: UpdateKind, text: string): void {
  const file = getUpdateFile(dataDir, kind);
  const draft = `${file}.${process.pid}.tmp`;
  try {
    makeFolder(dataDir, 0o700);
    // One of an ended process with this number, or a link.
    fs.rmSync(draft, { force: true });
    removeLeftDrafts(dataDir, DRAFT);
    writeDraft(draft, text);
    fs.renameSync(draft, file);
    syncFolder(dataDir);
  } catch (cause) {
    removeDraft(draft);
    throw new StartupError('config_invalid', [`${file}: cannot be written: ${(cause as NodeJS.ErrnoException).code}`]);
  }
}

const DRAFT = /^(?:prices|models)-update\.json\.(\d+)\.tmp$/;

function writeDraft(draft: string, text: string): void {
  const written = fs.openSync(draft, 'wx', 0o600);
  try {
    fs.writeFileSync(written, text);
    fs.fsyncSync(written);
  } finally {
    fs.closeSync(written);
  }
}

function syncFolder(dataDir: string): void {
  const folder = fs.openSync(dataDir, 'r');
  try {
    fs.fsyncSync(folder);
  } finally {
    fs.closeSync(folder);
  }
}

type Mapping = Readonly<Record<string, unknown>>;

/**
 * The text of the shipped registry with the models of an update. The newer of both wins for a model that both have, and
 * its models come first; a short name that it gives away is no longer one of another model. Adapters are those of the
 * shipped registry, so that no update changes where a key is sent.
 */
export function layModels(shipped: string, update: UpdateText | null): string {
  if (update === null) return shipped;
  const base = readMapping(shipped, 'registry.yaml');
  const over = readMapping(update.text, update.file);
  const [newer, older] = toDay(over) < toDay(base) ? [base, over] : [over, base];
  const first = toMapping(newer.models);
  const given = new Set(Object.values(first).flatMap(listAliases));
  const rest = Object.entries(toMapping(older.models))
    .filter(([id]) => !Object.hasOwn(first, id))
    .map(([id, entry]) => [id, withoutAliases(entry, given)] as const);
  const models = { ...first, ...Object.fromEntries(rest) };
  return JSON.stringify({ updated_on: newer.updated_on ?? null, adapters: base.adapters ?? {}, models });
}

function readMapping(text: string, file: string): Mapping {
  const yaml = readYaml(text, OWN_FILE);
  if (!yaml.ok) throw new StartupError('registry_invalid', [`${file}: ${yaml.error}`]);
  if (isMapping(yaml.value)) return yaml.value;
  throw new StartupError('registry_invalid', [`${file}: must be a mapping with the key models`]);
}

function toDay({ updated_on }: Mapping): string {
  if (typeof updated_on === 'string') return updated_on;
  return '';
}

function listAliases(entry: unknown): unknown[] {
  const { aliases } = toMapping(entry);
  if (Array.isArray(aliases)) return aliases;
  return [];
}

function withoutAliases(entry: unknown, given: ReadonlySet<unknown>): unknown {
  if (!isMapping(entry) || listAliases(entry).length === 0) return entry;
  return { ...entry, aliases: listAliases(entry).filter((alias) => !given.has(alias)) };
}
