// A request that a person starts: whether it runs, and why it failed.
import { useState } from 'preact/hooks';
import { useApi } from './api.ts';

interface Request {
  /** While it runs. */
  readonly busy: boolean;
  /** Why the last one failed; null when it did not. */
  readonly error: unknown;
  /** Sends it. Resolves with whether it succeeded; never rejects. */
  readonly send: (request: () => Promise<unknown>) => Promise<boolean>;
}

/** @param first the failure to show before the first request */
export function useRequest(first: unknown = null): Request {
  const { reportFailure } = useApi();
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState<unknown>(first);
  const send = async (request: () => Promise<unknown>) => {
    setBusy(true);
    setError(null);
    try {
      await request();
      return true;
    } catch (reason) {
      reportFailure(reason);
      setError(reason);
      return false;
    } finally {
      setBusy(false);
    }
  };
  return { busy, error, send };
}
