// Lists that stay current: asked again every two seconds while the page is visible (17 §3).
import { createContext } from 'preact';
import { useCallback, useContext, useEffect, useRef, useState } from 'preact/hooks';
import { ApiError, type Confirmation, type Health, type Session, type TrustedFileInfo } from '#client/client.ts';
import { systemClock } from '#protocol/clock.ts';
import { readClientName } from '#protocol/text/client-ref.ts';
import { baseName } from '../format/format.ts';
import { useApi, useMay } from './api.ts';

const POLL_MS = 2000;

interface Polled<T> {
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
  const { reportFailure, isPaused } = useApi();
  const [state, setState] = useState<{ key: string; data: T | null; error: unknown }>({ key, data: null, error: null });
  const [round, setRound] = useState(0);
  const question = useRef(ask);
  question.current = ask;

  useEffect(() => {
    if (isPaused) return;
    const gone = new AbortController();
    let timer: ReturnType<typeof setTimeout> | undefined;
    const scheduleNext = () => {
      if (!gone.signal.aborted && document.visibilityState === 'visible') timer = setTimeout(runQuery, every);
    };
    const runQuery = () => {
      clearTimeout(timer);
      question.current(gone.signal).then(
        (data) => {
          if (gone.signal.aborted) return;
          setState({ key, data, error: null });
          scheduleNext();
        },
        (error: unknown) => {
          if (gone.signal.aborted) return;
          reportFailure(error);
          setState((last) => ({ key, data: last.key === key ? last.data : null, error }));
          scheduleNext();
        },
      );
    };
    const onVisible = () => {
      if (document.visibilityState === 'visible') runQuery();
      else clearTimeout(timer);
    };
    document.addEventListener('visibilitychange', onVisible);
    runQuery();
    return () => {
      gone.abort();
      clearTimeout(timer);
      document.removeEventListener('visibilitychange', onVisible);
    };
  }, [key, every, reportFailure, round, isPaused]);

  const reload = useCallback(() => setRound((n) => n + 1), []);
  return { data: state.key === key ? state.data : null, error: state.error, reload };
}

const SETTLED_MS = 200;

/** A text once nothing has been typed for a moment, so that not every letter is asked for. */
export function useSettled(text: string): string {
  const [settled, setSettled] = useState(text);
  useEffect(() => {
    const timer = setTimeout(() => setSettled(text), SETTLED_MS);
    return () => clearTimeout(timer);
  }, [text]);
  return settled;
}

// One clock for everything on the page that ages: a single timer, and none while the page is hidden.

const TICK_MS = 1000;
const watchers = new Set<(now: number) => void>();
let timer: ReturnType<typeof setInterval> | undefined;

/** Unix milliseconds, anew every second while `ticking`. */
export function useNow(ticking = true): number {
  const [now, setNow] = useState(() => systemClock.now());
  useEffect(() => {
    if (!ticking) return;
    watchers.add(setNow);
    timer ??= setInterval(tick, TICK_MS);
    setNow(systemClock.now());
    return () => {
      watchers.delete(setNow);
      if (watchers.size > 0) return;
      clearInterval(timer);
      timer = undefined;
    };
  }, [ticking]);
  return now;
}

function tick(): void {
  if (document.visibilityState !== 'visible') return;
  const now = systemClock.now();
  for (const watcher of watchers) watcher(now);
}

// Workspaces as the sessions know them: their paths, and the hashes that the reports call them by.

const EVERY_MS = 60_000;
const PAGE = 200;

/** Paths of the newest sessions' workspaces, that of the newest first. */
export function useWorkspacePaths(): Polled<readonly string[]> {
  return usePaths(hasFiles);
}

/** The gateway names its own folder `gateway` where a client names no workspace, and there is no such folder (19). */
function hasFiles({ door, workspace_path }: Session): boolean {
  return door !== 'gateway' || baseName(workspace_path) !== 'gateway';
}

function usePaths(isShown: (session: Session) => boolean): Polled<readonly string[]> {
  const { client } = useApi();
  return usePolled(
    async (signal) => {
      const { sessions } = await client.listSessions({ limit: PAGE }, { signal });
      return collectPaths(sessions, isShown);
    },
    'workspaces',
    EVERY_MS,
  );
}

/** Each once, that of the first session first. */
function collectPaths(sessions: readonly Session[], isShown: (session: Session) => boolean): readonly string[] {
  return [...new Set(sessions.filter(isShown).map(({ workspace_path }) => workspace_path))];
}

/** Paths by their SHA-256; empty where the browser computes none (http to another host). */
export function useWorkspaces(): ReadonlyMap<string, string> {
  const { data } = usePaths(() => true);
  const [paths, setPaths] = useState<ReadonlyMap<string, string>>(new Map());
  useEffect(() => {
    if (data === null || !isSecureContext) return;
    let gone = false;
    void Promise.all(data.map(async (path) => [await computeHash(path), path] as const)).then((pairs) => {
      if (!gone) setPaths(new Map(pairs));
    });
    return () => {
      gone = true;
    };
  }, [data]);
  return paths;
}

/** What the reports call a workspace; null where the browser cannot compute it. */
export async function workspaceHash(path: string): Promise<string | null> {
  if (isSecureContext) return computeHash(path);
  return null;
}

async function computeHash(path: string): Promise<string> {
  const digest = await crypto.subtle.digest('SHA-256', new TextEncoder().encode(path));
  return [...new Uint8Array(digest)].map((byte) => byte.toString(16).padStart(2, '0')).join('');
}

// Every question that waits for a person, asked for once for the whole page: the navigation counts, the inbox shows.

const MOST = 200;
const MOST_ACTIVE = 100;
const MOST_FAILED = 50;
const FAILED_MS = 6000;
const DAY_MS = 86_400_000;

export interface Pulse {
  readonly health: Health;
  /** Oldest first. */
  readonly approvals: readonly Confirmation[];
  /** There are more than are listed. */
  readonly more: boolean;
  /** Sessions with an open turn, newest first: those that run and those that wait. */
  readonly active: readonly Session[];
  /** Open sessions whose newest turn failed within a day, newest first. */
  readonly failed: readonly Session[];
  /** Files that ask for trust, of the workspaces of the newest sessions. */
  readonly untrusted: readonly UntrustedFile[];
}

export interface UntrustedFile {
  readonly workspace: string;
  readonly path: string;
}

/** How the server is and what it asks. */
export function usePulse(): Polled<Pulse> {
  const { client } = useApi();
  const may = useMay();
  const readFailed = useFailed();
  const readUntrusted = useUntrusted();
  return usePolled(async (signal) => {
    const [health, { confirmations, next_cursor }, { sessions }, failed, untrusted] = await Promise.all([
      client.getHealth({ signal }),
      client.listConfirmations({ limit: MOST }, { signal }),
      client.listSessions({ status: ['running', 'interrupted'], limit: MOST_ACTIVE }, { signal }),
      readFailed(signal),
      may('trustFile') ? readUntrusted(signal) : [],
    ]);
    const open = new Set(sessions.map(({ id }) => id));
    return {
      health,
      approvals: confirmations,
      more: next_cursor !== null,
      active: sessions,
      failed: failed.filter(({ id }) => !open.has(id)),
      untrusted,
    };
  }, 'pulse');
}

/** Asked more seldom than the rest, since the server looks at every open session for it. */
function useFailed(): (signal: AbortSignal) => Promise<readonly Session[]> {
  const { client } = useApi();
  const last = useRef<{ readonly at: number; readonly sessions: readonly Session[] } | null>(null);
  return async (signal) => {
    const now = systemClock.now();
    if (last.current !== null && now - last.current.at < FAILED_MS) return last.current.sessions;
    const { sessions } = await client.listSessions({ failed: true, limit: MOST_FAILED }, { signal });
    const recent = sessions.filter(({ failure }) => Date.parse(failure?.failed_at ?? '') > now - DAY_MS);
    last.current = { at: now, sessions: recent };
    return recent;
  };
}

const MOST_WORKSPACES = 10;
const UNTRUSTED_MS = 10_000;

/** It is there, asks for more than it would get without trust, and is not trusted as it is. */
export function isWaitingForTrust({ trusted, sha256, widens }: TrustedFileInfo): boolean {
  return !trusted && sha256 !== null && widens.length > 0;
}

/** Asked still more seldom, since the server looks at every definition of a workspace for it. */
function useUntrusted(): (signal: AbortSignal) => Promise<readonly UntrustedFile[]> {
  const { client } = useApi();
  const last = useRef<{ readonly at: number; readonly files: readonly UntrustedFile[] } | null>(null);
  const listUntrusted = async (workspace: string, signal: AbortSignal) => {
    try {
      const { files } = await client.listTrustedFiles({ workspace_path: workspace }, { signal });
      return files.filter(isWaitingForTrust).map(({ path }) => ({ workspace, path }));
    } catch (error) {
      // A folder that is gone, or that this server may not read any more.
      if (error instanceof ApiError && error.code !== 'unauthorized') return [];
      throw error;
    }
  };
  return async (signal) => {
    const now = systemClock.now();
    if (last.current !== null && now - last.current.at < UNTRUSTED_MS) return last.current.files;
    const { sessions } = await client.listSessions({ limit: PAGE }, { signal });
    const paths = collectPaths(sessions, hasFiles).slice(0, MOST_WORKSPACES);
    const found = await Promise.all(paths.map((path) => listUntrusted(path, signal)));
    last.current = { at: now, files: found.flat() };
    return last.current.files;
  };
}

export const PulseContext = createContext<Polled<Pulse> | null>(null);

export function useOpenApprovals(): Polled<Pulse> {
  const pulse = useContext(PulseContext);
  if (pulse === null) throw new Error('no shell above this component');
  return pulse;
}

// What sessions are called, for reports that know them by id alone.

const TITLES_PER_REQUEST = 200;
const AT_ONCE = 40;

/** Sessions by id; null for one that was purged. The newest come in one question, others one by one. */
export function useSessionsById(ids: readonly string[]): ReadonlyMap<string, Session | null> {
  const { client, reportFailure } = useApi();
  const [known, setKnown] = useState<ReadonlyMap<string, Session | null>>(new Map());
  // A row of private sessions has a word in place of an id.
  const missing = ids.filter((id) => id.startsWith('sess_') && !known.has(id));
  const key = missing.join(' ');
  useEffect(() => {
    if (key === '') return;
    const gone = new AbortController();
    const { signal } = gone;
    const loadMissing = async () => {
      const found = new Map(known);
      const wanted = key.split(' ');
      if (found.size === 0) {
        const { sessions } = await client.listSessions({ limit: TITLES_PER_REQUEST }, { signal });
        for (const session of sessions) found.set(session.id, session);
      }
      const rest = wanted.filter((id) => !found.has(id)).slice(0, AT_ONCE);
      const one = async (id: string) => found.set(id, await client.getSession(id, { signal }).catch(ignoreNotFound));
      await Promise.all(rest.map(one));
      setKnown(found);
    };
    loadMissing().catch((error: unknown) => {
      if (!signal.aborted) reportFailure(error);
    });
    return () => gone.abort();
    // What is known changes with every answer, and asks again only for what is still missing.
  }, [client, reportFailure, key]);
  return known;
}

function ignoreNotFound(error: unknown): null {
  if (error instanceof ApiError && error.code === 'not_found') return null;
  throw error;
}

/** What a session is called where it has no title of its own: by its task, else as its client knows it. */
export function getTitle(session: Session): string {
  return session.title ?? session.task ?? readClientName(session.client_ref) ?? 'Untitled session';
}
