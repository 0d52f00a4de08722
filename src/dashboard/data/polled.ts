// Lists that stay current: asked again every two seconds while the page is visible (17 §3).
import { useCallback, useEffect, useRef, useState } from 'preact/hooks';
import { useApi } from './api.ts';

export const POLL_MS = 2000;

export interface Polled<T> {
  /** What came last; kept while a later question fails. */
  readonly data: T | null;
  /** Why the last question failed; null when it did not. */
  readonly error: unknown;
  /** Asks at once. */
  readonly reload: () => void;
}

/**
 * Asks now, whenever `key` changes, and again every `every` milliseconds after an answer, while the page is visible.
 * An answer to an earlier key is thrown away.
 */
export function usePolled<T>(
  ask: (signal: AbortSignal) => Promise<T>,
  key: string,
  every: number = POLL_MS,
): Polled<T> {
  const { failed } = useApi();
  const [state, setState] = useState<{ key: string; data: T | null; error: unknown }>({ key, data: null, error: null });
  const [round, setRound] = useState(0);
  const question = useRef(ask);
  question.current = ask;

  useEffect(() => {
    const gone = new AbortController();
    let timer: ReturnType<typeof setTimeout> | undefined;
    const next = () => {
      if (!gone.signal.aborted && document.visibilityState === 'visible') timer = setTimeout(run, every);
    };
    const run = () => {
      clearTimeout(timer);
      question.current(gone.signal).then(
        (data) => {
          if (gone.signal.aborted) return;
          setState({ key, data, error: null });
          next();
        },
        (error: unknown) => {
          if (gone.signal.aborted) return;
          failed(error);
          setState((last) => ({ key, data: last.key === key ? last.data : null, error }));
          next();
        },
      );
    };
    const onVisible = () => {
      if (document.visibilityState === 'visible') run();
      else clearTimeout(timer);
    };
    document.addEventListener('visibilitychange', onVisible);
    run();
    return () => {
      gone.abort();
      clearTimeout(timer);
      document.removeEventListener('visibilitychange', onVisible);
    };
  }, [key, every, failed, round]);

  const reload = useCallback(() => setRound((n) => n + 1), []);
  return { data: state.key === key ? state.data : null, error: state.error, reload };
}
