// What was written to a session and not sent, until its field takes it over.
import { useEffect, useState } from 'preact/hooks';

interface Draft {
  readonly text: string;
  /** Paths, one a line; null where none were named. */
  readonly files: string | null;
  /** Why it was refused; null = it was not sent. */
  readonly error: string | null;
}

const kept = new Map<string, Draft>();

/** For the field of that session, when it is opened next. An empty text is none. */
export function keepDraft(sessionId: string, draft: Draft): void {
  if (draft.text !== '') kept.set(sessionId, draft);
}

/** What was kept for it, once. */
export function takeDraft(sessionId: string): Draft | null {
  const draft = kept.get(sessionId) ?? null;
  kept.delete(sessionId);
  return draft;
}

/** For one who signs out. */
export function forgetDrafts(): void {
  kept.clear();
}

// Whether the page is as narrow as a telephone, for the few things that style sheets cannot decide.

const NARROW = '(max-width: 759px)';

export function useNarrow(): boolean {
  const [narrow, setNarrow] = useState(() => matchMedia(NARROW).matches);
  useEffect(() => {
    const query = matchMedia(NARROW);
    const updateNarrow = () => setNarrow(query.matches);
    query.addEventListener('change', updateNarrow);
    return () => query.removeEventListener('change', updateNarrow);
  }, []);
  return narrow;
}
