// What was written to a session and refused, until its field takes it over.

export interface Draft {
  readonly text: string;
  /** Paths, one a line; null where none were named. */
  readonly files: string | null;
  /** Why it was refused. */
  readonly error: string;
}

const kept = new Map<string, Draft>();

/** For the field of that session, which is opened next. */
export function keepDraft(sessionId: string, draft: Draft): void {
  kept.set(sessionId, draft);
}

/** What was kept for it, once. */
export function takeDraft(sessionId: string): Draft | null {
  const draft = kept.get(sessionId) ?? null;
  kept.delete(sessionId);
  return draft;
}
