// Checks of a workspace: its file, the one that a name means, and the files that a check protects (20 §10).
import picomatch from 'picomatch';
import { type AttemptRecord, type Check, type Checks, ChecksSchema, type StoredCheck } from '#protocol/check.ts';
import { err, ok, type Result } from '#protocol/result.ts';
import { cutText } from '../cut.ts';
import { describeIssues } from '../parsing/plain-issue.ts';
import { OUTSIDE } from '../parsing/text-limits.ts';
import { isMapping, readYaml } from '../parsing/yaml.ts';

/** Relative to the workspace. */
export const CHECKS_FILE = '.metis/checks.yaml';

/** The checks of a file: `checks:` with a map, or the map alone. The error is one line that goes after the name of the file. */
export function readChecksFile(text: string): Result<Checks, string> {
  const yaml = readYaml(text, OUTSIDE);
  if (!yaml.ok) return yaml;
  const root = yaml.value ?? {};
  const isWrapped =
    isMapping(root) && Object.keys(root).length === 1 && isMapping(root.checks) && !isCheck(root.checks);
  const parsed = ChecksSchema.safeParse(isWrapped ? root.checks : root);
  if (parsed.success) return ok(parsed.data);
  const [first] = describeIssues(parsed.error, ChecksSchema);
  if (first === undefined) return err('must be a map of checks by name');
  return err([first.path.map(String).join('.'), first.message].filter((part) => part !== '').join(': '));
}

/** A check may be called `checks` too. */
function isCheck(value: Readonly<Record<string, unknown>>): boolean {
  return typeof value.command === 'string';
}

/** One sentence per check for the person who trusts the file. */
export function describeChecks(checks: Checks): string[] {
  return Object.entries(checks).map(([name, { command, protect }]) => {
    const guards = protect.length === 0 ? 'protects no file' : `protects ${protect.join(', ')}`;
    return `check ${name}: runs \`${cutText(command, 200)}\` without an approval; ${guards}`;
  });
}

/** The workspace's file as it was found. */
export interface FoundChecks {
  /** Of the server's configuration, which wins over the file. */
  readonly server: Checks;
  /** Of the file; empty where it does not count. */
  readonly workspace: Checks;
  /** Why the file does not count; null = it does, or there is none. */
  readonly fault: string | null;
}

/** The error lists what there is, and how to trust a file that does not count. */
export function pickCheck(name: string, { server, workspace, fault }: FoundChecks): Result<StoredCheck, string> {
  const found = readOwn(server, name) ?? readOwn(workspace, name);
  if (found !== null) return ok({ name, ...found });
  const names = [...new Set([...Object.keys(server), ...Object.keys(workspace)])].sort();
  let message = `there is no check "${cutText(name, 64)}"`;
  message += names.length === 0 ? '; none is configured' : `; there are: ${names.join(', ')}`;
  if (fault !== null) message += `. ${fault}`;
  return err(message);
}

function readOwn(checks: Checks, name: string): Check | null {
  return Object.hasOwn(checks, name) ? checks[name]! : null;
}

/** Whether a path matches one of the globs. Letters of either case are the same, so that no twin of a protected file gets through. */
export function createMatcher(globs: readonly string[]): (path: string) => boolean {
  const matchers = globs.map((glob) => picomatch(glob, { dot: true, nocase: true, nonegate: true }));
  return (path) => matchers.some((matches) => matches(path));
}

/** Characters of the check's output that models read. */
const MAX_SHOWN = 4000;

type Failure = Pick<AttemptRecord, 'check_name' | 'exit_code' | 'output' | 'protected_changes'>;

/** The end of a failed check's output, under a line with its exit code. */
export function formatFailure({ check_name, exit_code, output }: Failure): string {
  const end = exit_code === null ? 'was stopped' : `failed with exit code ${exit_code}`;
  const text = output ?? '';
  const tail =
    text.length <= MAX_SHOWN ? text : `...${text.slice(text.length - MAX_SHOWN).replace(/^[\uDC00-\uDFFF]/, '')}`;
  return `[check ${check_name} ${end}; the end of its output:]\n${tail}`;
}

/** The message with which a worker goes on after its check has failed. */
export function formatRungMessage(failure: Failure): string {
  const dropped = failure.protected_changes.slice(0, 20).join(', ');
  const note = dropped === '' ? '' : `\nChanges to these files do not count and are not in what is checked: ${dropped}`;
  return `Your changes were merged and checked by the server, and do not pass.\n${formatFailure(failure)}${note}\nCorrect your changes in the same workspace, then answer as before.`;
}
