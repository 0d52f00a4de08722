// The list of sessions for the view: asked for again and again, and grown as one scrolls.
import { useCallback, useEffect, useMemo, useRef, useState } from 'preact/hooks';
import { useApi } from '#dashboard/data/api.ts';
import { usePolled } from '#dashboard/data/queries.ts';
import { createSessionLoader, type ListQuery, type SessionList } from './session-list.ts';

const EVERY_MS = 2000;
/** The server looks at the first message of every session for a search. */
const SEARCH_MS = 10_000;

/** `more` loads older sessions, and does nothing while it does. */
export function useSessions(query: ListQuery) {
  const { client, reportFailure } = useApi();
  const key = `${query.state} ${query.include_workers} ${query.worker_name} ${query.door} ${query.owner} ${query.q}`;
  const loader = useMemo(() => createSessionLoader(client, query), [client, key]);
  const { data, error, reload } = usePolled(loader.refresh, key, query.q === null ? EVERY_MS : SEARCH_MS);
  const [grown, setGrown] = useState<SessionList | null>(null);
  // What was asked for by scrolling counts until the next answer of the polling, which contains it.
  useEffect(() => setGrown(null), [data]);
  const list = grown ?? data;
  const loading = useRef<typeof loader | null>(null);
  const current = useRef(loader);
  current.current = loader;
  const next = list?.next ?? null;
  const more = useCallback(() => {
    if (loading.current === loader || next === null) return;
    loading.current = loader;
    loader
      .older(new AbortController().signal)
      .then((longer) => {
        // An answer to the filters before is of no use.
        if (current.current === loader) setGrown(longer);
      }, reportFailure)
      .finally(() => {
        if (loading.current === loader) loading.current = null;
      });
  }, [loader, reportFailure, next]);
  return { list, error, reload, more };
}
