// Finds worker definitions and reads one with its prompt and its output schema (13 §3.1 to §3.3, §6.6).

import { statSync } from 'node:fs';
import { realpath } from 'node:fs/promises';
import { readJson } from '#core/policy/parsing/json.ts';
import { OUTSIDE } from '#core/policy/parsing/text-limits.ts';
import { readAgent } from '#core/policy/workers/agent-file.ts';
import {
  hashDefinition,
  MAX_WORKER_BYTES,
  PROMPT_SUFFIXES,
  parseTemplate,
  readDefinition,
} from '#core/policy/workers/read-definition.ts';
import { err, ok, type Result } from '#protocol/result.ts';
import { sha256Hex } from '#protocol/text/canonical-json.ts';
import { compareText } from '#protocol/text/compare-text.ts';
import { ToolError } from '#protocol/tool.ts';
import {
  type FileDigest,
  type FoundWorker,
  WORKER_NAME_PATTERN,
  type WorkerDefinition,
  type WorkerProblem,
} from '#protocol/worker-definition.ts';
import { createWorkspaceFiles } from './confined-files.ts';
import {
  describeProblem,
  errorCode,
  folderPrefix,
  isMissing,
  listDirectory,
  readStart,
  SwappedPath,
} from './descriptors.ts';
import type { OnceLogger } from './once-logger.ts';

// Folders with worker definitions, and the files of each name (13 §3.1).

/** In the order of rank. */
export const PLACES = [
  { folder: '.metis/workers', endings: ['.yaml', '.json'], form: 'definition' },
  { folder: 'workers', endings: ['.yaml', '.json'], form: 'definition' },
  { folder: '.claude/agents', endings: ['.md'], form: 'agent' },
] as const;
/** Maximum files read of one folder. */
const MAX_FILES = 5000;
/** Folders of agents below their own. */
const MAX_DEPTH = 8;

type Place = (typeof PLACES)[number];

/** The files of one name in the folder of the highest rank; more than one file is an error. */
export interface Located {
  readonly name: string;
  readonly place: Place;
  /** Paths below the folder, in byte order. */
  readonly files: readonly string[];
  /** Real path of the folder. */
  readonly directory: string;
}

/** By name. @param resolveName reads the name of an agent from its file */
export async function locateAll(
  root: string,
  log: OnceLogger,
  resolveName: (path: string, stem: string) => Promise<string>,
): Promise<ReadonlyMap<string, Located>> {
  const found = new Map<string, Located>();
  for (const place of PLACES.toReversed()) {
    const directory = await folderInside(root, place.folder, log);
    if (directory === null) continue;
    const files = await listWorkerFiles(directory, place, log);
    const here = new Map<string, string[]>();
    for (const file of files) {
      const ending = place.endings.find((e) => file.endsWith(e) && file.length > e.length);
      if (ending === undefined) continue;
      const stem = file.slice(file.lastIndexOf('/') + 1, -ending.length);
      const name = place.form === 'agent' ? await resolveName(`${directory}/${file}`, stem) : stem;
      here.set(name, [...(here.get(name) ?? []), file]);
    }
    for (const [name, files] of here) found.set(name, { name, place, files, directory });
  }
  return found;
}

/** Real path of a folder of the workspace; null when it is missing, or a link takes it elsewhere. */
async function folderInside(root: string, folder: string, log: OnceLogger): Promise<string | null> {
  const path = `${root}/${folder}`;
  if (isMissing(path)) return null;
  const real = await realpath(path).catch(() => null);
  if (real?.startsWith(folderPrefix(root))) return real;
  log.log(
    'warn',
    path,
    { workspace: root, folder },
    'a folder of worker definitions is ignored: it leads out of the workspace',
  );
  return null;
}

async function listWorkerFiles(directory: string, place: Place, log: OnceLogger): Promise<readonly string[]> {
  const names: string[] = [];
  // Agents may lie in folders of the folder; links to folders are not followed.
  const folders = [{ path: '', depth: 0 }];
  for (const { path, depth } of folders) {
    const entries = await readEntries(`${directory}/${path}`.replace(/\/$/, ''), log);
    for (const { name, kind } of entries) {
      if (name.startsWith('.')) continue;
      if (kind !== 'directory') names.push(`${path}${name}`);
      else if (place.form === 'agent' && depth < MAX_DEPTH && folders.length < MAX_FILES)
        folders.push({ path: `${path}${name}/`, depth: depth + 1 });
    }
    if (names.length > MAX_FILES) break;
  }
  names.sort(compareText);
  if (names.length > MAX_FILES) {
    const fields = { path: directory, files: names.length };
    log.log('warn', directory, fields, `${place.folder} has more than ${MAX_FILES} files; the first by name are read`);
  }
  return names.slice(0, MAX_FILES);
}

async function readEntries(directory: string, log: OnceLogger) {
  return listDirectory(directory).catch((error: unknown) => {
    if (errorCode(error) !== 'ENOTDIR')
      log.log(
        'warn',
        directory,
        { path: directory, problem: describeProblem(error) },
        'a folder of workers cannot be read',
      );
    return [];
  });
}

/** Changes whenever the file may have changed, been created or removed. */
export function fileStamp(path: string): string {
  try {
    const stat = statSync(path, { throwIfNoEntry: false });
    if (stat === undefined) return '';
    return `${stat.mtimeMs} ${stat.ctimeMs} ${stat.size} ${stat.ino}`;
  } catch (error) {
    return errorCode(error) ?? 'unknown';
  }
}

const LEADS_OUT = 'is a link that leads out of the workspace';
const MAX_SCHEMA_FILE = OUTSIDE.bytes;

interface LoadContext {
  readonly log: OnceLogger;
  /** Called with every path before it is read. */
  onLookup(path: string): void;
  /** Collects the files that the definition and its instructions were read from. */
  readonly sources: FileDigest[];
}

export async function loadWorker(
  root: string,
  located: Located,
  given: Omit<LoadContext, 'sources'>,
): Promise<FoundWorker> {
  const looking: LoadContext = { ...given, sources: [] };
  const { name, place, files, directory } = located;
  const file = `${place.folder}/${files[0]}`;
  const bare = { name, origin: 'project', path: file, read_only: place.form === 'agent' } as const;
  const nothing = {
    definition: null,
    instructions: null,
    instructions_source: null,
    output_schema: null,
    digest: null,
    sources: [],
  };
  const failure = (message: string): FoundWorker => ({
    ...bare,
    ...nothing,
    errors: [{ path: '', message, file, line: null }],
    warnings: [],
  });
  if (files.length > 1) return failure(`ambiguous: ${files.join(' and ')} have the same name; keep one`);
  looking.onLookup(`${directory}/${files[0]}`);
  const text = await readInside(root, `${directory}/${files[0]}`);
  if (!text.ok) return failure(text.error);
  looking.sources.push({ path: file, sha256: text.value.sha256 });
  const format = files[0]!.endsWith('.json') ? 'json' : 'yaml';
  const read =
    place.form === 'agent'
      ? readAgent(text.value.text, { name, file })
      : { ...readDefinition(text.value.text, { name, file, format }), warnings: [] };
  const errors = [...read.errors];
  if (!WORKER_NAME_PATTERN.test(name))
    errors.push({
      path: 'name',
      message: 'the file must be named with 1 to 64 letters, digits, "_" and "-"',
      file,
      line: null,
    });
  const { definition, warnings } = read;
  if (definition === null) return { ...bare, ...nothing, errors, warnings };
  const rest = await loadReferences(root, definition, { file, looking, errors });
  return { ...bare, definition, ...rest, errors, warnings };
}

/** Completes a definition that has no file, such as a session's. */
export async function completeWorker(
  root: string,
  definition: WorkerDefinition,
  log: OnceLogger,
): Promise<FoundWorker> {
  const errors: WorkerProblem[] = [];
  const looking = { log, onLookup: () => {}, sources: [] };
  const rest = await loadReferences(root, definition, { file: null, looking, errors });
  const { name } = definition;
  return { name, origin: 'session', path: null, read_only: true, definition, ...rest, errors, warnings: [] };
}

/** Loads the files that a definition references. Adds problems to `errors`. */
async function loadReferences(
  root: string,
  definition: WorkerDefinition,
  {
    file,
    looking,
    errors,
  }: { readonly file: string | null; readonly looking: LoadContext; readonly errors: WorkerProblem[] },
) {
  const problem = (path: string, message: string, where = file) =>
    errors.push({ path, message, file: where, line: null });
  let instructions = definition.instructions;
  let source: string | null = 'inline';
  if (instructions === null) {
    source = null;
    const prompt = await readPrompt(root, definition.name, looking);
    if (prompt === null)
      problem('instructions', `are missing: write them, or put them into prompts/${definition.name}.md`);
    else if (!prompt.text.ok) problem('instructions', prompt.text.error, prompt.path);
    else if (prompt.text.value.trim() === '') problem('instructions', 'must not be blank', prompt.path);
    else [instructions, source] = [prompt.text.value, prompt.path];
  }
  let schema: unknown = null;
  if (definition.output_schema_ref !== null) {
    const read = await readSchema(root, definition.output_schema_ref, looking);
    if (read.ok) schema = read.value;
    else problem('output_schema_ref', read.error);
  }
  const digest = instructions === null ? null : hashDefinition(definition, instructions);
  return { instructions, instructions_source: source, output_schema: schema, digest, sources: looking.sources };
}

/** `.metis/prompts` takes precedence over `prompts`. */
async function readPrompt(root: string, name: string, looking: LoadContext) {
  for (const folder of ['.metis/prompts', 'prompts'])
    for (const suffix of PROMPT_SUFFIXES) {
      const inner = `${name}.${suffix}`;
      looking.onLookup(`${root}/${folder}/${inner}`);
      if (isMissing(`${root}/${folder}/${inner}`)) continue;
      const path = { folder, inner, shown: `${folder}/${inner}` };
      const raw = await readBeside(root, path, looking);
      const isTemplate = suffix === 'j2' || suffix === 'jinja2';
      if (!raw.ok || !isTemplate) return { path: path.shown, text: raw };
      return { path: path.shown, text: await renderTemplate(root, raw.value, looking) };
    }
  return null;
}

async function renderTemplate(root: string, template: string, looking: LoadContext): Promise<Result<string, string>> {
  const parts = parseTemplate(template);
  if (!parts.ok) return parts;
  let text = '';
  for (const part of parts.value) {
    if (part.kind === 'text') text += part.text;
    else {
      const path = await findBeside(root, 'prompts', part.path, looking);
      const read = path === null ? err('is missing') : await readBeside(root, path, looking);
      if (!read.ok) return err(`file(${JSON.stringify(part.path)}): ${read.error}`);
      text += read.value;
    }
    if (Buffer.byteLength(text) > MAX_WORKER_BYTES)
      return err(`has more than ${MAX_WORKER_BYTES} bytes with its files`);
  }
  return ok(text);
}

async function readSchema(root: string, ref: string, looking: LoadContext): Promise<Result<unknown, string>> {
  for (const name of [ref, `${ref}.json`]) {
    const path = await findBeside(root, 'schemas', name, looking);
    if (path === null) continue;
    // A schema widens nothing, so its bytes need no trust.
    const text = await readBeside(root, path, { ...looking, sources: [] });
    if (!text.ok) return err(`${path.shown}: ${text.error}`);
    const json = readJson(text.value, OUTSIDE);
    if (json.ok) return json;
    return err(`${path.shown} ${json.error}`);
  }
  return err(`names no file: schemas/${ref} and schemas/${ref}.json are missing`);
}

interface Beside {
  readonly folder: string;
  readonly inner: string;
  /** Relative to the workspace. */
  readonly shown: string;
}

/** Below `.metis/<folder>`, or else below `<folder>`; null when neither has it. */
async function findBeside(
  root: string,
  folder: string,
  inner: string,
  { onLookup: looked }: LoadContext,
): Promise<Beside | null> {
  for (const place of [`.metis/${folder}`, folder]) {
    looked(`${root}/${place}/${inner}`);
    if (!isMissing(`${root}/${place}/${inner}`)) return { folder: place, inner, shown: `${place}/${inner}` };
  }
  return null;
}

/** A text file that cannot lead out of its folder (09 §8). */
async function readBeside(
  root: string,
  { folder, inner, shown }: Beside,
  { log, sources }: LoadContext,
): Promise<Result<string, string>> {
  const directory = await folderInside(root, folder, log);
  if (directory === null) return err('its folder leads out of the workspace');
  const files = createWorkspaceFiles(directory);
  try {
    const source = decodeSource(await files.readFile(await files.resolve(inner, 'read'), MAX_SCHEMA_FILE));
    if (!source.ok) return source;
    sources.push({ path: shown, sha256: source.value.sha256 });
    return ok(source.value.text);
  } catch (error) {
    if (error instanceof ToolError) return err(error.message.replace('workspace boundary', `${folder}/`));
    throw error;
  }
}

/** A text file by its path relative to the workspace, in the one spelling that has no `.`, `..` or empty parts. */
export async function readSource(root: string, path: string): Promise<Result<Source, string>> {
  if (path.split('/').some((part) => ['', '.', '..'].includes(part)) || path.includes('\0'))
    return err('is not a path of a file relative to the workspace');
  return readInside(root, `${folderPrefix(root)}${path}`);
}

/** A definition's file; a link is followed within the workspace only. */
export async function readInside(root: string, path: string): Promise<Result<Source, string>> {
  try {
    const data = await readStart(path, MAX_WORKER_BYTES + 1).catch(async (error: unknown) => {
      if (!(error instanceof SwappedPath)) throw error;
      const real = await realpath(path);
      if (!real.startsWith(folderPrefix(root))) throw new ToolError('permission_denied', LEADS_OUT);
      return readStart(real, MAX_WORKER_BYTES + 1);
    });
    if (data === null) return err('is missing');
    if (data.length > MAX_WORKER_BYTES) return err(`has more than ${MAX_WORKER_BYTES} bytes`);
    return decodeSource(data);
  } catch (error) {
    if (error instanceof ToolError) return err(error.message);
    return err(`cannot be read: ${errorCode(error) ?? describeProblem(error)}`);
  }
}

interface Source {
  readonly text: string;
  readonly sha256: string;
}

function decodeSource(data: Uint8Array): Result<Source, string> {
  try {
    return ok({ text: new TextDecoder('utf-8', { fatal: true }).decode(data), sha256: sha256Hex(data) });
  } catch {
    return err('is not valid UTF-8 text');
  }
}
