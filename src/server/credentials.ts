// Provider keys and base URLs: from the environment and the data folder's `.env`, never from a config file (11.9).
import fs from 'node:fs';
import path from 'node:path';
import { parseEnv } from 'node:util';
import { environmentStem, keyVariable } from '#core/policy/registry/adapter-config.ts';

export type Env = Readonly<Record<string, string | undefined>>;

/** The part of an adapter's registry entry that decides its key. */
export interface KeyedAdapter {
  readonly type: string;
  readonly base_url?: string | null | undefined;
  readonly api_key_env?: string | null | undefined;
  readonly key_optional?: boolean | undefined;
}

export interface AdapterCredentials {
  /** Null when there is none and none is needed. */
  readonly key: string | null;
  /** Null = the adapter's own default. */
  readonly base_url: string | null;
}

export interface Credentials {
  /** Null: the adapter cannot be used. */
  forAdapter(id: string, adapter: KeyedAdapter): AdapterCredentials | null;
  /** The variable that would hold the adapter's key. */
  keyName(id: string, adapter: KeyedAdapter): string;
  /** A variable that is named as a secret; null when it is not set. */
  secret(name: string): string | null;
  /** Every value held as a secret, for exact-match redaction. */
  readonly secrets: readonly string[];
}

export interface EnvFile {
  readonly path: string;
  readonly values: Env;
  /** One line, when the file exists and could not be used. */
  readonly problem: string | null;
  /** One line each for what in it means nothing; never its text, which may be a key. */
  readonly remarks: readonly string[];
}

const SECRET_NAME = /(?:_API_KEY|_TOKEN|_SECRET|_PASSWORD)$/;
const OPEN_TO_OTHERS = 0o077;

/** Reads `<data>/.env`. A file that others can read is not read: its keys are not secret. */
export function readEnvFile(dataDir: string): EnvFile {
  const file = path.join(dataDir, '.env');
  try {
    const mode = fs.statSync(file).mode & 0o777;
    if ((mode & OPEN_TO_OTHERS) !== 0) {
      const shown = mode.toString(8).padStart(4, '0');
      const problem = `${file} has mode ${shown} and was not read; run: chmod 600 ${file}`;
      return { path: file, values: {}, problem, remarks: [] };
    }
    const text = fs.readFileSync(file, 'utf8');
    const remarks = findStrayLines(text).map(
      (line) => `${file}: line ${line} has no "=" and is ignored; write NAME=value`,
    );
    return { path: file, values: parseEnv(text) as Env, problem: null, remarks };
  } catch (cause) {
    const { code } = cause as NodeJS.ErrnoException;
    const problem = code === 'ENOENT' || code === 'ENOTDIR' ? null : `${file} cannot be read: ${code}`;
    return { path: file, values: {}, problem, remarks: [] };
  }
}

/** Numbers of the lines that are no comment and set nothing; a value in quotes may go over several. */
function findStrayLines(text: string): number[] {
  const stray: number[] = [];
  let quote: string | null = null;
  for (const [i, line] of text.split('\n').entries()) {
    if (quote !== null) {
      if (line.includes(quote)) quote = null;
      continue;
    }
    if (/^\s*(#|$)/.test(line)) continue;
    const value = /=\s*(.*)$/.exec(line)?.[1];
    if (value === undefined) stray.push(i + 1);
    else if (/^["'`]/.test(value) && !value.includes(value[0]!, 1)) quote = value[0]!;
  }
  return stray;
}

/**
 * Resolves keys by adapter: an override, else the variable that the registry or the convention names.
 * @param env the environment with the `.env` file merged under it
 * @param overrides adapter id -> key, for tests and embedding
 */
export function createCredentials(env: Env, overrides: Readonly<Record<string, string>> = {}): Credentials {
  const secrets = new Set(Object.values(overrides));
  // Names come from files: `__proto__` is a name as well.
  const readVariable = (name: string) => (Object.hasOwn(env, name) && env[name]) || null;
  for (const [name, value] of Object.entries(env)) if (value && SECRET_NAME.test(name)) secrets.add(value);

  return {
    keyName: (id, { api_key_env }) => keyVariable(id, api_key_env),
    forAdapter(id, adapter) {
      const key = overrides[id] ?? readVariable(keyVariable(id, adapter.api_key_env));
      const ownUrl = readVariable(getBaseUrlVariable(id));
      if (key !== null) secrets.add(key);
      // A server at an address of one's own often has no keys at all.
      const optional = adapter.key_optional === true || (adapter.type === 'openai' && ownUrl !== null);
      if (key === null && !optional) return null;
      return { key, base_url: adapter.base_url ?? ownUrl };
    },
    secret(name) {
      const value = readVariable(name);
      if (value !== null) secrets.add(value);
      return value;
    },
    get secrets() {
      return [...secrets];
    },
  };
}

/** First 8 and last 4 characters of a long key, otherwise nothing of it. */
export function displayKey(key: string): string {
  if (key === '') return '<empty>';
  if (key.length >= 24) return `${key.slice(0, 8)}...${key.slice(-4)}`;
  return '***';
}

/** The variable that may hold the address of an adapter. */
export function getBaseUrlVariable(id: string): string {
  return `${environmentStem(id)}_BASE_URL`;
}
