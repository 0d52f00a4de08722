// The server as every view reaches it: the typed client with the tab's token, and what happens when it is refused.

import { type ComponentChildren, createContext, Fragment, h } from 'preact';
import { useContext, useEffect, useMemo, useRef, useState } from 'preact/hooks';
import {
  ApiError,
  createMetisClient,
  type MetisClient,
  type OwnToken,
  type Session,
  type StreamItem,
} from '#client/client.ts';
import type { Ownership, Person } from '#protocol/people/person.ts';
import { canApprove, canCall, type OperationId } from '#protocol/people/rights.ts';
import { readErrorMessage } from '#protocol/text/error-message.ts';

export interface Api {
  readonly client: MetisClient;
  /** Of the server, without a slash at its end. */
  readonly address: string;
  /** The requests carry a token. */
  readonly hasToken: boolean;
  /** No person is signed in at the moment: nothing is asked. */
  readonly isPaused: boolean;
  /** Takes note of a refused token, so that the page asks for another one. Every failure goes through it. */
  readonly reportFailure: (error: unknown) => void;
}

export const ApiContext = createContext<Api | null>(null);

export function useApi(): Api {
  const api = useContext(ApiContext);
  if (api === null) throw new Error('no server above this component');
  return api;
}

/** The server is where the page came from. The browser keeps the token for this tab alone (17 §3). */
export function createApi(token: string | null, onUnauthorized: () => void = () => {}): Api {
  const baseUrl = new URL('.', location.href.split('#', 1)[0]).href;
  return {
    client: createMetisClient({ baseUrl, token }),
    address: baseUrl.replace(/\/$/, ''),
    hasToken: token !== null,
    isPaused: false,
    reportFailure: (error) => {
      if (error instanceof ApiError && error.code === 'unauthorized') onUnauthorized();
    },
  };
}

/** What happened, for a person. */
export function explain(error: unknown): string {
  if (error instanceof ApiError) return error.message;
  if (error instanceof TypeError) return 'The server does not answer. The page tries again every few seconds.';
  return readErrorMessage(error);
}

/** The invalid fields and their errors, where the server lists them. */
export function listIssues(error: unknown): readonly { readonly path: string; readonly message: string }[] {
  const issues = error instanceof ApiError ? error.details?.issues : undefined;
  if (Array.isArray(issues))
    return issues.map(({ path, message }) => ({ path: String(path), message: String(message) }));
  return [];
}

// Who uses the page and what they may do: what a person may not do is not drawn (23 §1).

export const PersonContext = createContext<OwnToken | null>(null);
const SessionContext = createContext<Ownership | null>(null);

/** The token of this page and its role; its token is null where none is required, and for one without a name. */
export function useOwnToken(): OwnToken {
  const own = useContext(PersonContext);
  if (own === null) throw new Error('no person above this component');
  return own;
}

/** The person in the form that the rights are asked with. */
export function toPerson({ token, role }: OwnToken): Person {
  return { id: token?.id ?? null, name: token?.name ?? '', role, workspaces: token?.workspaces ?? null };
}

type Owned = Pick<Session, 'owner' | 'share'>;

/** Who may see and change a session; a session without these fields has no owner and may be read by all. */
export function readOwnership({ owner, share }: Owned): Ownership {
  return { owner: owner?.id ?? null, share: share ?? 'read' };
}

/** What is drawn below concerns this session; null = one that is not known yet. */
export function InSession(props: { readonly session: Owned | null; readonly children: ComponentChildren }) {
  const ownership = props.session && readOwnership(props.session);
  const [owner, share] = [ownership?.owner, ownership?.share];
  // Sessions are read again every few seconds: what is drawn below changes with their rights alone.
  const value = useMemo(() => ownership, [owner, share]);
  return h(SessionContext.Provider, { value, children: props.children });
}

/** Asks whether the person may call an operation: in the given session, else in the one around the component. */
export function useMay(): (operation: OperationId, session?: Owned | null) => boolean {
  const own = useOwnToken();
  const person = toPerson(own);
  const around = useContext(SessionContext);
  return (operation, session) => {
    const ownership = session ? readOwnership(session) : around;
    if (operation === 'answerConfirmation' && ownership !== null && !canApprove(person, ownership, own.approves_own))
      return false;
    return canCall(person, operation, ownership);
  };
}

/** Draws its children where the person may call the operation. */
export function May(props: { readonly operation: OperationId; readonly children: ComponentChildren }) {
  const may = useMay();
  return h(Fragment, null, may(props.operation) && props.children);
}

/** Maximum wait for a frame of a visible page. */
const LATE_MS = 250;

// A session's live stream as a hook: planner and workers, taken up again by the client after a broken connection.

/**
 * Follows a session with all its workers from a snapshot on. Items are handed over in bundles, one a frame or a quarter
 * of a second, so that a model's stream costs one drawing and not one per word.
 * `onLost` is called when the connection breaks: what is not stored as an event may be missing from then on.
 * @returns why the stream ended for good; null while it goes on
 */
export function useSessionStream(
  sessionId: string,
  onItems: (items: readonly StreamItem[]) => void,
  onLost: () => void,
): unknown {
  const { client, reportFailure, isPaused } = useApi();
  const [error, setError] = useState<unknown>(null);
  const handler = useRef(onItems);
  handler.current = onItems;
  const lost = useRef(onLost);
  lost.current = onLost;

  useEffect(() => {
    if (isPaused) {
      lost.current();
      return;
    }
    const gone = new AbortController();
    let waiting: StreamItem[] = [];
    let frame = 0;
    let late: ReturnType<typeof setTimeout> | undefined;
    const handOver = () => {
      cancelAnimationFrame(frame);
      clearTimeout(late);
      frame = 0;
      const items = waiting;
      waiting = [];
      if (!gone.signal.aborted) handler.current(items);
    };
    const readStream = async () => {
      const stream = client.stream(sessionId, {
        snapshot: true,
        include_worker_sessions: true,
        signal: gone.signal,
        connected: (yes) => {
          if (yes || gone.signal.aborted) return;
          handOver();
          lost.current();
        },
      });
      for await (const item of stream) {
        waiting.push(item);
        // A hidden page draws no frames, and what came meanwhile must not pile up without end.
        if (document.visibilityState !== 'visible') handOver();
        else if (frame === 0) {
          frame = requestAnimationFrame(handOver);
          // A busy browser may draw none for long though the page is visible.
          late = setTimeout(handOver, LATE_MS);
        }
      }
    };
    setError(null);
    readStream().catch((reason: unknown) => {
      if (gone.signal.aborted) return;
      reportFailure(reason);
      setError(reason);
    });
    return () => {
      gone.abort();
      cancelAnimationFrame(frame);
      clearTimeout(late);
    };
  }, [client, reportFailure, sessionId, isPaused]);
  return error;
}
