// What sessions are called, for reports that know them by id alone.
import { useEffect, useState } from 'preact/hooks';
import { ApiError, type Session } from '#client/client.ts';
import { useApi } from './api.ts';

const PAGE = 200;
const AT_ONCE = 40;

/** Sessions by id; null for one that was purged. The newest come in one question, others one by one. */
export function useSessionsById(ids: readonly string[]): ReadonlyMap<string, Session | null> {
  const { client, failed } = useApi();
  const [known, setKnown] = useState<ReadonlyMap<string, Session | null>>(new Map());
  const missing = ids.filter((id) => !known.has(id));
  const key = missing.join(' ');
  useEffect(() => {
    if (key === '') return;
    const gone = new AbortController();
    const { signal } = gone;
    const find = async () => {
      const found = new Map(known);
      const wanted = key.split(' ');
      if (found.size === 0) {
        const { sessions } = await client.listSessions({ limit: PAGE }, { signal });
        for (const session of sessions) found.set(session.id, session);
      }
      const rest = wanted.filter((id) => !found.has(id)).slice(0, AT_ONCE);
      const one = async (id: string) => found.set(id, await client.getSession(id, { signal }).catch(purged));
      await Promise.all(rest.map(one));
      setKnown(found);
    };
    find().catch((error: unknown) => {
      if (!signal.aborted) failed(error);
    });
    return () => gone.abort();
    // What is known changes with every answer, and asks again only for what is still missing.
  }, [client, failed, key]);
  return known;
}

function purged(error: unknown): null {
  if (error instanceof ApiError && error.code === 'not_found') return null;
  throw error;
}

/** What a session is called where it has no title of its own: by its task, else as its client knows it. */
export function titleOf(session: Session): string {
  return session.title ?? session.task ?? session.client_ref ?? 'Untitled session';
}
