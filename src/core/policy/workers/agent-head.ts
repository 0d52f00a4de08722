// The head of an agent's file as other programs read it: YAML, or lines of `key: text` where it is none (13 §3.1).
import { err, ok, type Result } from '#protocol/result.ts';
import { OUTSIDE } from '../parsing/limits.ts';
import { isMapping, readYaml } from '../parsing/yaml.ts';

const HEAD = /^---[ \t]*\n(?:([\s\S]*?)\n)?---[ \t]*(?:\n|$)/;
/** Keys that begin a line of a head; every other line goes on with the text above it. */
const KEY =
  /^(name|description|tools|disallowedTools|model|maxTurns|skills|color|permissionMode|mcpServers|hooks|memory|background|isolation|effort|initialPrompt):(?:[ \t]|$)/;

export interface AgentText {
  /** Without its first and last line. */
  readonly head: string;
  readonly keys: Readonly<Record<string, unknown>>;
  readonly body: string;
}

/** The error is one line. */
export function readAgentText(text: string): Result<AgentText, string> {
  const plain = text.replace(/^\uFEFF/, '').replaceAll('\r\n', '\n');
  const found = HEAD.exec(plain);
  if (found === null && plain.startsWith('---\n')) return err('a line of exactly "---" must end the head');
  const head = found?.[1] ?? '';
  const yaml = readYaml(head, OUTSIDE);
  const keys = yaml.ok ? (yaml.value ?? {}) : keysByLine(head);
  if (keys === null) return err(`the head ${yaml.ok ? '' : yaml.error}`);
  if (!isMapping(keys)) return err('the head must be a mapping');
  return ok({ head, keys, body: plain.slice(found?.[0].length ?? 0).trim() });
}

/** Null where the text is too long, or no line begins with a key. */
function keysByLine(head: string): Readonly<Record<string, unknown>> | null {
  if (Buffer.byteLength(head) > OUTSIDE.bytes) return null;
  const entries: { readonly key: string; readonly lines: string[] }[] = [];
  for (const line of head.split('\n')) {
    const key = KEY.exec(line)?.[1];
    if (key !== undefined) entries.push({ key, lines: [line] });
    else entries.at(-1)?.lines.push(line);
  }
  if (entries.length === 0) return null;
  // The first of two counts, and a key of the prototype is a key like any other.
  return Object.fromEntries(entries.reverse().map(({ key, lines }) => [key, valueUnder(key, lines.join('\n'))]));
}

function valueUnder(key: string, text: string): unknown {
  const yaml = readYaml(text, OUTSIDE);
  if (yaml.ok && isMapping(yaml.value) && Object.keys(yaml.value).length === 1) return yaml.value[key];
  return text.slice(key.length + 1).trim();
}
