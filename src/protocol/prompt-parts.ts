// A step at which what a model is shown of a history became smaller; the messages themselves stay as they are (10 §7).
import type { MessageId, SessionId, Ulid } from './ids.ts';

interface Step {
  readonly id: Ulid;
  readonly session_id: SessionId;
  /** Tokens of the request, as they count against the window. */
  readonly tokens_before: number;
  readonly tokens_after: number;
  /** Unix milliseconds. */
  readonly created_at: number;
}

/** The large parts of these messages, tool results and images, are shown as one line each. */
export interface Elision extends Step {
  readonly kind: 'elide';
  readonly message_ids: readonly MessageId[];
}

/** A text replaces everything up to and with this message. */
export interface HistorySummary extends Step {
  readonly kind: 'summary';
  readonly through_message_id: MessageId;
  readonly summary_text: string;
  /** The model that wrote it. */
  readonly model: string;
}

export type Checkpoint = Elision | HistorySummary;

// A skill: a folder with a `SKILL.md`, instructions that a model reads when it needs them (10 §5).

/** A skill as the index of a prompt lists it. */
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
