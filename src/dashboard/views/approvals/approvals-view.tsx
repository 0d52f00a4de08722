// The inbox: every open question of every session, oldest first, answered by pointer or by keyboard alone (17 §3).
import { useEffect, useRef, useState } from 'preact/hooks';
import type { Confirmation, Session } from '#client/client.ts';
import { ApprovalCard } from '#dashboard/approval/approval-card.tsx';
import { InSession, useApi } from '#dashboard/data/api.ts';
import { getTitle, useOpenApprovals, useSessionsById } from '#dashboard/data/queries.ts';
import { baseName, formatAtLeast, formatNumber } from '#dashboard/format/format.ts';
import { useMoveByKey } from '#dashboard/parts/keys.ts';
import { Badge, Time, type Tone } from '#dashboard/parts/labels.tsx';
import { Empty, Failure, Skeleton } from '#dashboard/parts/panels.tsx';
import { formatPlace } from '#dashboard/shell/place.ts';

// The outcome of questions from the inbox: answered here, answered by another person, or expired.

const KEPT = 8;
const WORDS: Readonly<Record<string, { readonly word: string; readonly tone: Tone }>> = {
  approve: { word: 'approved', tone: 'ok' },
  modify: { word: 'approved with edited arguments', tone: 'ok' },
  reject: { word: 'rejected', tone: 'bad' },
  timeout: { word: 'expired', tone: 'warn' },
  cancelled: { word: 'cancelled with its turn', tone: 'plain' },
};

/** Newest first: what was open and is no longer. */
function useDecided(open: readonly Confirmation[] | null): readonly Confirmation[] {
  const { client, reportFailure } = useApi();
  const before = useRef<readonly Confirmation[]>([]);
  const [decided, setDecided] = useState<readonly Confirmation[]>([]);
  useEffect(() => {
    if (open === null) return;
    const now = new Set(open.map((one) => one.confirmation_request_id));
    const gone = before.current.filter((one) => !now.has(one.confirmation_request_id));
    before.current = open;
    for (const { confirmation_request_id } of gone) {
      client
        .getConfirmation(confirmation_request_id)
        .then((one) => setDecided((all) => [one, ...all].slice(0, KEPT)), reportFailure);
    }
  }, [client, reportFailure, open]);
  return decided;
}

function Decided(props: { readonly decided: readonly Confirmation[]; readonly mine: ReadonlySet<string> }) {
  return (
    <section class="decided" aria-label="Just decided" aria-live="polite">
      {props.decided.length > 0 && <h2>Just decided</h2>}
      {props.decided.map((one) => {
        const { word, tone } = WORDS[one.decision ?? ''] ?? { word: one.decision ?? 'gone', tone: 'plain' };
        return (
          <p key={one.confirmation_request_id}>
            <code>{one.tool_name}</code> <Badge tone={tone}>{word}</Badge>{' '}
            <span class="quiet">
              {describeAnswerer(one, props.mine)} {one.resolved_at && <Time at={one.resolved_at} />}
              {one.reason && ` · “${one.reason}”`}
            </span>
          </p>
        );
      })}
    </section>
  );
}

function describeAnswerer(one: Confirmation, mine: ReadonlySet<string>): string {
  if (one.resolved_by !== 'user') return '';
  if (mine.has(one.confirmation_request_id)) return 'by you';
  return `by ${one.answered_by?.name ?? 'another user'}`;
}

/** Each card asks for its call: hundreds at once would hold up the page and the server. */
const CARDS = 40;

export function ApprovalsView() {
  const { data, error, reload } = useOpenApprovals();
  const open = data?.approvals ?? null;
  const sessions = useSessionsById(
    (open ?? []).flatMap(({ root_session_id, session_id }) => [root_session_id, session_id]),
  );
  const [shown, setShown] = useState(CARDS);
  const [mine] = useState(() => new Set<string>());
  const decided = useDecided(open);
  const box = useMoveByKey('.approval', open?.map((one) => one.confirmation_request_id).join(' ') ?? '');
  return (
    <div class="view approvals-view">
      <header class="view-head">
        <h1>Approvals</h1>
        <span class="quiet number" role="status">
          {open && `${formatAtLeast(open.length, data?.more ?? false)} open`}
        </span>
        {open !== null && open.length > 0 && (
          <p class="keys quiet">
            <kbd>j</kbd> <kbd>k</kbd> next and previous, <kbd>a</kbd> approve, <kbd>e</kbd> edit, <kbd>r</kbd> reject
          </p>
        )}
      </header>
      <div class="view-body approvals" ref={box}>
        {error !== null && open === null && (
          <Failure error={error} title="The approval requests could not be loaded" retry={reload} />
        )}
        {open === null && error === null && <Skeleton rows={3} height={120} />}
        {open?.length === 0 && (
          <Empty icon="approvals" title="No open approvals">
            <p>
              A call that needs approval appears here until you answer it or it expires. The key{' '}
              <code>tool_confirmation</code> of the configuration selects these calls.
            </p>
          </Empty>
        )}
        {open?.slice(0, shown).map((confirmation) => (
          <InSession
            key={confirmation.confirmation_request_id}
            session={sessions.get(confirmation.root_session_id) ?? null}
          >
            <ApprovalCard
              confirmation={confirmation}
              origin={<Origin confirmation={confirmation} sessions={sessions} />}
              onAnswered={(applied) => {
                if (applied) mine.add(confirmation.confirmation_request_id);
                reload();
              }}
            />
          </InSession>
        ))}
        {open !== null && open.length > shown && (
          <p class="quiet">
            {formatNumber(open.length - shown)} more appear when you have answered these.{' '}
            <button type="button" class="button ghost" onClick={() => setShown(shown + CARDS)}>
              Show more
            </button>
          </p>
        )}
        <Decided decided={decided} mine={mine} />
      </div>
    </div>
  );
}

/** The tree it comes from, and who in it asks. */
function Origin(props: {
  readonly confirmation: Confirmation;
  readonly sessions: ReadonlyMap<string, Session | null>;
}) {
  const { root_session_id, session_id } = props.confirmation;
  const root = props.sessions.get(root_session_id);
  const asks = props.sessions.get(session_id);
  return (
    <>
      <a href={formatPlace('sessions', root_session_id)}>{root ? getTitle(root) : 'Session'}</a>
      {session_id !== root_session_id && (
        <>
          {' › '}
          <a href={formatPlace('sessions', session_id)}>{asks ? getTitle(asks) : 'worker'}</a>
        </>
      )}
      {root && <span class="quiet"> in {baseName(root.workspace_path)}</span>}
    </>
  );
}
