// The list of skills at the end of a stable prompt (10 §5.3).
import type { SkillEntry } from '#protocol/context/skill.ts';

const MAX_BYTES = 16 * 1024;
const TITLE = '## Available skills';
const HEADING = `${TITLE}\nUse \`skill_load(name)\` to read one.\n`;

/** Null when there is no skill. At most 16 KiB; what does not fit is counted in the last line. */
export function skillIndex(skills: readonly SkillEntry[]): string | null {
  if (skills.length === 0) return null;
  const lines = skills.map(({ name, description }) => `\n- ${name}: ${oneLine(description)}`);
  const sizes = lines.map((line) => Buffer.byteLength(line));
  const heading = Buffer.byteLength(HEADING);
  if (heading + sum(sizes) <= MAX_BYTES) return `${HEADING}${lines.join('')}`;
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

/** A description must not look like the line of another skill. */
function oneLine(description: string): string {
  return description.replaceAll(/[\s\p{Cc}]+/gu, ' ').trim();
}

function sum(numbers: readonly number[]): number {
  return numbers.reduce((total, n) => total + n, 0);
}
