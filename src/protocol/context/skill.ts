// A skill: a folder with a `SKILL.md`, instructions that a model reads when it needs them (10 §5).

/** What the index of a prompt says of a skill. */
export interface SkillEntry {
  readonly name: string;
  /** Trimmed; may hold line ends. */
  readonly description: string;
}

/** A skill as it is read for a call. */
export interface Skill extends SkillEntry {
  readonly body: string;
  /** First 16 hex digits of the body's SHA-256. */
  readonly version: string;
  readonly estimated_body_tokens: number;
  readonly source: 'global' | 'workspace';
}
