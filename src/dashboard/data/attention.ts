// What waits for a person, over all sessions: one list for the badge of the navigation and the box of the overview.

import type { Session } from '#client/client.ts';
import { waitingEnds } from '#client/stream-items.ts';
import { baseName } from '../format/format.ts';
import { formatPlace, formatPlaceWithQuery } from '../shell/place.ts';
import type { useMay } from './api.ts';
import { getTitle, type Pulse } from './queries.ts';

export interface AttentionItem {
  readonly id: string;
  readonly kind: 'approval' | 'budget' | 'interrupted' | 'failed' | 'key' | 'trust';
  /** `Run`, with `code` after it, as a question. */
  readonly text: string;
  readonly code?: string;
  /** The session it is about, or what there is to know of it. */
  readonly note: string;
  readonly place: string;
  /** When it expires by itself, as the server writes times. */
  readonly expires?: string;
}

/**
 * Approvals first, since they expire. `titles` has the sessions that are known by id. What the person may do nothing
 * about is not listed.
 */
export function listAttention(
  { approvals, active, failed, untrusted }: Pulse,
  titles: ReadonlyMap<string, Session | null>,
  may: ReturnType<typeof useMay>,
): readonly AttentionItem[] {
  return [
    ...approvals.flatMap((one): AttentionItem | [] => {
      const session = active.find(({ id }) => id === one.root_session_id) ?? titles.get(one.root_session_id);
      if (!may('answerConfirmation', session)) return [];
      return {
        id: one.confirmation_request_id,
        kind: 'approval',
        text: 'Run',
        code: one.tool_name,
        note: (session && getTitle(session)) ?? 'Session',
        place: formatPlace('approvals'),
        expires: one.expires_at,
      };
    }),
    ...active.filter((one) => may('resumeTurn', one)).flatMap((session) => describePause(session) ?? []),
    ...failed
      .filter((one) => may('submitTurn', one))
      .map(
        (session): AttentionItem => ({
          id: session.id,
          kind: 'failed',
          text: getTitle(session),
          note: `failed: ${session.failure?.message ?? session.failure?.error_code ?? ''}`,
          place: formatPlace('sessions', session.id),
        }),
      ),
    ...(may('getSettings') ? listRefusedKeys(failed) : []).map(
      (provider): AttentionItem => ({
        id: provider,
        kind: 'key',
        text: `The key of ${provider} is not accepted`,
        note: 'Replace the key, then retry the turns that failed.',
        place: formatPlace('models'),
      }),
    ),
    ...untrusted.map(
      ({ workspace, path }): AttentionItem => ({
        id: `${workspace} ${path}`,
        kind: 'trust',
        text: 'Trust',
        code: path,
        note: baseName(workspace),
        place: formatPlaceWithQuery('workers', { workspace }),
      }),
    ),
  ];
}

/** Providers that refused the key of a turn. */
function listRefusedKeys(failed: readonly Session[]): readonly string[] {
  const refused = failed.filter(({ failure }) => failure?.error_class === 'auth');
  return [...new Set(refused.flatMap(({ failure }) => failure?.provider ?? []))];
}

function describePause(session: Session): AttentionItem | null {
  const about = { id: session.id, note: getTitle(session), place: formatPlace('sessions', session.id) };
  if (waitingEnds(session.waiting_on).some(({ kind }) => kind === 'budget'))
    return { ...about, kind: 'budget', text: 'Raise the cap' };
  if (session.status === 'interrupted') return { ...about, kind: 'interrupted', text: 'Resume the turn' };
  return null;
}
