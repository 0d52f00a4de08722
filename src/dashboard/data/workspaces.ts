// Workspaces as the sessions know them: their paths, and the hashes that the reports call them by.
import { useEffect, useState } from 'preact/hooks';
import type { Session } from '#client/client.ts';
import { baseName } from '../format/number.ts';
import { useApi } from './api.ts';
import { type Polled, usePolled } from './polled.ts';

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
      return [...new Set(sessions.filter(isShown).map(({ workspace_path }) => workspace_path))];
    },
    'workspaces',
    EVERY_MS,
  );
}

/** Paths by their SHA-256; empty where the browser computes none (http to another host). */
export function useWorkspaces(): ReadonlyMap<string, string> {
  const { data } = usePaths(() => true);
  const [paths, setPaths] = useState<ReadonlyMap<string, string>>(new Map());
  useEffect(() => {
    if (data === null || !isSecureContext) return;
    let gone = false;
    void Promise.all(data.map(async (path) => [await hashOf(path), path] as const)).then((pairs) => {
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
  return isSecureContext ? hashOf(path) : null;
}

async function hashOf(path: string): Promise<string> {
  const digest = await crypto.subtle.digest('SHA-256', new TextEncoder().encode(path));
  return [...new Uint8Array(digest)].map((byte) => byte.toString(16).padStart(2, '0')).join('');
}
