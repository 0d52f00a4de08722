// The server as every view reaches it: the typed client with the tab's token, and what happens when it is refused.
import { createContext } from 'preact';
import { useContext } from 'preact/hooks';
import { ApiError, createMetisClient, type MetisClient } from '#client/client.ts';

export interface Api {
  readonly client: MetisClient;
  /** Takes note of a refused token, so that the page asks for another one. Every failure goes through it. */
  readonly failed: (error: unknown) => void;
}

export const ApiContext = createContext<Api | null>(null);

export function useApi(): Api {
  const api = useContext(ApiContext);
  if (api === null) throw new Error('no server above this component');
  return api;
}

/** The server is where the page came from. The token lives in this tab's memory alone (17 §3). */
export function createApi(token: string | null, onUnauthorized: () => void): Api {
  const baseUrl = new URL('.', location.href.split('#', 1)[0]).href;
  return {
    client: createMetisClient({ baseUrl, token }),
    failed: (error) => {
      if (error instanceof ApiError && error.code === 'unauthorized') onUnauthorized();
    },
  };
}

/** What happened, for a person. */
export function explain(error: unknown): string {
  if (error instanceof ApiError) return error.message;
  if (error instanceof TypeError) return 'The server does not answer. It is asked again every few seconds.';
  return error instanceof Error ? error.message : String(error);
}

/** What is wrong with which field, where the server says so. */
export function issuesOf(error: unknown): readonly { readonly path: string; readonly message: string }[] {
  const issues = error instanceof ApiError ? error.details?.issues : undefined;
  return Array.isArray(issues)
    ? issues.map(({ path, message }) => ({ path: String(path), message: String(message) }))
    : [];
}
