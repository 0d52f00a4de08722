// The settings of worktrees that a workspace's own file requests (20 §2.2, §11).

import { WorkspaceSettingsSchema, type WorktreeSettings } from '#protocol/file-change.ts';
import { err, ok, type Result } from '#protocol/result.ts';
import { canonicalJson } from '#protocol/text/canonical-json.ts';
import { cutText } from '../cut.ts';
import { describeIssues } from '../parsing/plain-issue.ts';
import { OUTSIDE } from '../parsing/text-limits.ts';
import { readYaml } from '../parsing/yaml.ts';

/** The keys in which the file differs from the server. The error is one line that goes after the name of the file. */
export function readWorkspaceSettings(
  text: string,
  server: WorktreeSettings,
): Result<Partial<WorktreeSettings>, string> {
  const yaml = readYaml(text, OUTSIDE);
  if (!yaml.ok) return yaml;
  const parsed = WorkspaceSettingsSchema.safeParse(yaml.value ?? {});
  if (parsed.success) {
    const isServerValue = (key: string, value: unknown) =>
      canonicalJson(value) === canonicalJson(Reflect.get(server, key));
    const own = Object.entries(parsed.data.delegation).filter(
      ([key, value]) => value !== undefined && !isServerValue(key, value),
    );
    return ok(Object.fromEntries(own));
  }
  const [first] = describeIssues(parsed.error, WorkspaceSettingsSchema);
  if (first === undefined) return err('must be a map');
  return err([first.path.map(String).join('.'), first.message].filter((part) => part !== '').join(': '));
}

/** One sentence per key for the person who trusts the file. */
export function describeWorkspaceSettings(settings: Partial<WorktreeSettings>): string[] {
  const { worktree_copy, worktree_links, worktree_setup } = settings;
  const sentences: string[] = [];
  if (worktree_copy !== undefined && worktree_copy.length > 0)
    sentences.push(`worktrees get copies of ignored files: ${cutText(worktree_copy.join(', '), 200)}`);
  if (worktree_links !== undefined)
    sentences.push(`worktrees get as links: ${cutText(worktree_links.join(', '), 200)}`);
  if (worktree_setup !== undefined && worktree_setup !== null)
    sentences.push(`each worktree runs \`${cutText(worktree_setup, 200)}\` without an approval`);
  return sentences;
}
