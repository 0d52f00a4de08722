// Reads a `SKILL.md`: a YAML head between two lines of three dashes, and the text for the model (10 §5.1).

import { z } from 'zod';
import type { Skill, SkillEntry } from '#protocol/prompt-parts.ts';
import { err, ok, type Result } from '#protocol/result.ts';
import { sha256Hex } from '#protocol/text/canonical-json.ts';
import { flattenText } from '#protocol/text/plain-text.ts';
import { codePoints } from '../context/message-size.ts';
import { estimateText } from '../context/token-estimate.ts';
import { describeIssues } from '../parsing/plain-issue.ts';
import type { Limits } from '../parsing/text-limits.ts';
import { isMapping, readYaml } from '../parsing/yaml.ts';

/** UTF-8 bytes of a `SKILL.md`. */
export const MAX_SKILL_BYTES = 262_144;
/** A body above it makes every later call expensive, so it gets a warning. */
export const LARGE_BODY_TOKENS = 5000;
const HEAD_LIMITS: Limits = { bytes: 65_536, depth: 16, nodes: 2000 };

const NAME = /^(?!.*--)[a-z0-9](?:[a-z0-9-]{0,62}[a-z0-9])?$/;
const HEAD = /^---\n(?:([\s\S]*?)\n)?---(?:\n|$)/;

/** Whether it may be the name of a skill, and so of its folder. */
export function isSkillName(name: string): boolean {
  return NAME.test(name);
}

const MAX_DESCRIPTION = 1024;
const limitLength = (most: number) => (text: string) => codePoints(text) <= most;

const HeadSchema = z.looseObject({
  name: z.string().regex(NAME, 'must be 1 to 64 of a-z, 0-9 and single -, with a letter or digit at both ends'),
  description: z.string().trim().min(1, 'must not be blank'),
  license: z.string().optional(),
  compatibility: z.string().refine(limitLength(500), 'must have at most 500 characters').optional(),
  metadata: z.record(z.string(), z.union([z.string(), z.number(), z.boolean()])).optional(),
  // Read as the format requires; whether a session may use it is decided elsewhere.
  'allowed-tools': z.string().optional(),
});

export interface ReadSkill {
  readonly skill: Omit<Skill, 'source'>;
  /** Each `key: problem`. */
  readonly warnings: readonly string[];
}

/**
 * The skill of a file, or everything that is wrong with it, each `key: problem`.
 * @param folder the name of the file's folder, which the skill must have
 */
export function readSkill(text: string, folder: string): Result<ReadSkill, readonly string[]> {
  const plain = text.replaceAll('\r\n', '\n');
  const head = HEAD.exec(plain);
  if (head === null && plain.startsWith('---\n')) return err(['a line of exactly "---" must end the head']);
  if (head === null) return err(['the first line must be "---"']);
  const yaml = readYaml(head[1] ?? '', HEAD_LIMITS);
  if (!yaml.ok) return err([`the head ${yaml.error}`]);
  if (!isMapping(yaml.value)) return err(['the head must be a mapping with name and description']);
  const parsed = HeadSchema.safeParse(yaml.value);
  const issues = parsed.error === undefined ? [] : describeIssues(parsed.error);
  const problems = issues.map(({ path, message }) => `${path.join('.')}: ${message}`);
  const { name } = yaml.value;
  if (typeof name === 'string' && name !== folder) problems.push('name: must equal the name of its folder');
  if (!parsed.success || problems.length > 0) return err(problems);
  const body = plain.slice(head[0].length).replace(/^\n+/, '');
  const skill = {
    name: parsed.data.name,
    description: parsed.data.description,
    body,
    version: sha256Hex(body).slice(0, 16),
    estimated_body_tokens: estimateText(body),
  };
  if (codePoints(skill.description) <= MAX_DESCRIPTION) return ok({ skill, warnings: [] });
  const description = [...skill.description].slice(0, MAX_DESCRIPTION).join('').trimEnd();
  const warning = `description: has more than ${MAX_DESCRIPTION} characters; models are given the first ${MAX_DESCRIPTION}`;
  return ok({ skill: { ...skill, description }, warnings: [warning] });
}

// The list of skills at the end of a stable prompt (10 §5.3).

const MAX_BYTES = 16 * 1024;
const TITLE = '## Available skills';
const HEADING = `${TITLE}\nUse \`skill_load(name)\` to read one.\n`;

/** Null when there is no skill. At most 16 KiB; what does not fit is counted in the last line. */
export function skillIndex(skills: readonly SkillEntry[]): string | null {
  if (skills.length === 0) return null;
  // A description must not look like the line of another skill.
  const lines = skills.map(({ name, description }) => `\n- ${name}: ${flattenText(description)}`);
  const sizes = lines.map((line) => Buffer.byteLength(line));
  const heading = Buffer.byteLength(HEADING);
  if (heading + sumNumbers(sizes) <= MAX_BYTES) return `${HEADING}${lines.join('')}`;
  let kept = 0;
  let bytes = heading + Buffer.byteLength(moreLine(lines.length));
  while (bytes + sizes[kept]! <= MAX_BYTES) bytes += sizes[kept++]!;
  return `${HEADING}${lines.slice(0, kept).join('')}${moreLine(lines.length - kept)}`;
}

/** Whether the index of a stored prompt has a line for the name. */
export function isIndexed(prompt: string | null, name: string): boolean {
  const index = prompt?.lastIndexOf(`${TITLE}\n`) ?? -1;
  return index >= 0 && prompt!.includes(`\n- ${name}: `, index);
}

function moreLine(count: number): string {
  return `\n- ... ${count} more`;
}

function sumNumbers(numbers: readonly number[]): number {
  return numbers.reduce((total, n) => total + n, 0);
}
