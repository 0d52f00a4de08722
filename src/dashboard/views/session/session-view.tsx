// One session: its conversation, its workers live, its timeline, and everything a person can do about it (17 §3).
import { useEffect, useMemo, useRef, useState } from 'preact/hooks';
import type { Session, Turn } from '#client/client.ts';
import { wordsFor } from '#client/stream-items.ts';
import { ApprovalCard } from '#dashboard/approval/approval-card.tsx';
import { useApi } from '#dashboard/data/api.ts';
import { getTitle, usePolled } from '#dashboard/data/queries.ts';
import { baseName, formatNumber, modelName, needsPerson } from '#dashboard/format/format.ts';
import { Badge, Elapsed, Icon, Money, SourceFacts, State } from '#dashboard/parts/labels.tsx';
import { Empty, Failure, Skeleton } from '#dashboard/parts/panels.tsx';
import { formatPlace, type Place } from '#dashboard/shell/place.ts';
import { fromPusd, sumPusd, toPusd } from '#protocol/money.ts';
import { Cap, Interrupted, MetCap, useMetCap } from './cap-controls.tsx';
import { Composer, getAddressee } from './composer.tsx';
import { Conversation } from './conversation.tsx';
import type { LiveNode, LiveSession } from './live/live-node.ts';
import { findNodeTask, LiveTree } from './live-tree.tsx';
import { Timeline } from './timeline.tsx';
import { useLiveSession } from './use-live-session.ts';

// What the tree waits for at this moment, in one line (20 §6).

/** What a person can do something about comes first. */
const ORDER = ['approval', 'budget', 'slot', 'tool', 'model'];
const NAMES = 3;

/**
 * A planner that waits for its workers is left out: their own waits are listed. The line keeps its height while it is
 * empty, so that the page does not move.
 */
function WaitingLine(props: { readonly waiting: Session['waiting_on']; readonly nodes: readonly LiveNode[] }) {
  const getNodeLabel = (id: string) => props.nodes.find(({ session_id }) => session_id === id)?.label ?? 'a worker';
  const groups = ORDER.map((kind) => props.waiting.filter((one) => one.kind === kind)).filter((of) => of.length > 0);
  return (
    <p class="waiting-line" role="status">
      {groups.length > 0 && <Icon name="clock" />}
      {groups.map((group) => {
        const [oldest] = group;
        if (oldest === undefined) return null;
        const names = [...new Set(group.map(({ session_id }) => getNodeLabel(session_id)))];
        const more = names.length > NAMES ? ` and ${names.length - NAMES} more` : '';
        return (
          <span key={oldest.kind} class={needsPerson(oldest) ? 'asks' : undefined}>
            {names.slice(0, NAMES).join(', ')}
            {more} {names.length === 1 ? 'is' : 'are'} waiting for {wordsFor(oldest.kind)}{' '}
            <Elapsed from={oldest.since} to={null} />
          </span>
        );
      })}
    </p>
  );
}

const TABS = [
  { id: '', title: 'Conversation' },
  { id: 'tree', title: 'Live tree' },
  { id: 'timeline', title: 'Timeline' },
];
const TURNS = 200;
/** Drawn at once, oldest first. */
const APPROVALS = 5;

export function SessionView({ sessionId, place }: { readonly sessionId: string; readonly place: Place }) {
  const { client } = useApi();
  const { live, frame, error, loadOlder } = useLiveSession(sessionId);
  const read = usePolled((signal) => client.getSession(sessionId, { signal }), sessionId);
  const session = read.data ?? live.session;
  // What is asked comes by the stream, at once: the line above the field must not say otherwise until the next poll.
  const asked = [...live.confirmations.keys()].join(' ');
  const lastAsked = useRef(asked);
  useEffect(() => {
    if (lastAsked.current === asked) return;
    lastAsked.current = asked;
    read.reload();
  }, [asked, read.reload]);
  const turns = useTurns(sessionId, live);
  const met = useMetCap(session, live.refusal);
  const tab = place.query.get('tab') ?? '';
  if (session === null) {
    const reason = read.error ?? error;
    return (
      <div class="view session-view">
        <header class="view-head">
          <h1>Session</h1>
        </header>
        {reason === null ? (
          <Skeleton rows={8} height={72} />
        ) : (
          <Failure error={reason} title="The session could not be loaded" retry={read.reload} />
        )}
      </div>
    );
  }
  const root = live.nodes[0];
  const running = session.status === 'running' || root?.state === 'running';
  return (
    <div class="view session-view">
      <Head session={session} live={live} onChanged={read.reload} />
      <nav class="tabs" aria-label="Parts of the session">
        {TABS.map(({ id, title }) => (
          <a
            key={id}
            href={`${formatPlace('sessions', sessionId)}${id === '' ? '' : `?tab=${id}`}`}
            aria-current={id === tab ? 'page' : undefined}
          >
            {title}
          </a>
        ))}
      </nav>
      {error !== null && <Failure error={error} title="The live updates have stopped" />}
      {tab === 'tree' ? (
        <LiveTree live={live} />
      ) : tab === 'timeline' ? (
        <Timeline sessionId={sessionId} turns={turns} version={live.version} label={root?.label ?? 'planner'} />
      ) : live.messages.length === 0 && live.open.size === 0 && !running ? (
        <div class="conversation">
          <NoMessages session={session} />
        </div>
      ) : (
        <Conversation live={live} frame={frame} turns={turns} loadOlder={loadOlder} />
      )}
      <div class="session-foot">
        <WaitingLine waiting={session.waiting_on} nodes={live.nodes} />
        {live.confirmations.size > 0 && <OpenApprovals live={live} />}
        {session.current_turn_status === 'interrupted' && !session.is_worker && (
          <Interrupted session={session} met={met} onChanged={read.reload} />
        )}
        {met !== null && session.current_turn_status !== 'interrupted' && session.status !== 'ended' && (
          <div class="interrupted" role="status">
            <MetCap met={met} />
          </div>
        )}
        {session.status !== 'ended' && session.door !== 'gateway' && (running || !session.is_worker) && (
          <Composer
            session={session}
            turnId={running ? openTurn(session, live, turns) : null}
            onChanged={read.reload}
          />
        )}
      </div>
    </div>
  );
}

/** The conversation of a gateway session belongs to its client, so there is no composer here. */
function NoMessages({ session }: { readonly session: Session }) {
  if (session.door === 'gateway')
    return (
      <Empty icon="sessions" title="The client keeps the conversation">
        <p>The calls pass through the gateway. The server stores their cost, not their content.</p>
      </Empty>
    );
  return (
    <Empty icon="sessions" title="No messages yet">
      <p>
        Write to {getAddressee(session)} below. It works in {session.workspace_path}.
      </p>
    </Empty>
  );
}

/** The turn that runs, as followed; as read only where that is not known to be over. */
function openTurn(session: Session, live: LiveSession, turns: ReadonlyMap<string, Turn>): string | null {
  const { current_turn_id: read } = session;
  const followed = live.nodes[0]?.turn_id ?? null;
  if (followed !== null || read === null) return followed;
  return turns.get(read)?.ended_at == null ? read : null;
}

/** What is asked, in a box of its own that scrolls: the field below it stays where it is. */
function OpenApprovals({ live }: { readonly live: LiveSession }) {
  const more = live.confirmations.size - APPROVALS;
  return (
    <section class="session-asked" aria-label="Open approvals" tabIndex={0}>
      {[...live.confirmations.values()].slice(0, APPROVALS).map((confirmation) => (
        <ApprovalCard
          key={confirmation.confirmation_request_id}
          confirmation={confirmation}
          origin={renderRequester(live, confirmation.session_id)}
        />
      ))}
      {more > 0 && (
        <p class="quiet">
          {formatNumber(more)} more are waiting. They appear when you have answered these, and under{' '}
          <a href={formatPlace('approvals')}>Approvals</a>.
        </p>
      )}
    </section>
  );
}

/** Which worker of the tree asks, by the name that the live tree has for it; undefined for the session itself. */
function renderRequester(live: LiveSession, sessionId: string) {
  const node = live.nodes.find(({ session_id }) => session_id === sessionId);
  if (node === undefined || node === live.nodes[0]) return undefined;
  return (
    <>
      <a href={formatPlace('sessions', sessionId)}>{node.label}</a>{' '}
      <span class="quiet">{findNodeTask(live, node)}</span>
    </>
  );
}

function Head(props: { readonly session: Session; readonly live: LiveSession; readonly onChanged: () => void }) {
  const { session, live, onChanged } = props;
  const [own, workers] = computeCosts(session, live);
  return (
    <header class="view-head session-head">
      <a
        class="button ghost icon-only"
        href={
          session.is_worker && session.parent_session_id !== null
            ? formatPlace('sessions', session.parent_session_id)
            : formatPlace('sessions')
        }
        aria-label={session.is_worker ? 'Back to the planner' : 'All sessions'}
      >
        <Icon name="back" />
      </a>
      <div class="session-title">
        <h1 title={getTitle(session)}>{getTitle(session)}</h1>
        <p class="sub">
          {(session.is_worker || session.worker_name !== null) && (
            <Badge tone="worker">{session.worker_name ?? 'worker'}</Badge>
          )}
          <State state={session.status} />
          <span title={session.workspace_path}>{baseName(session.workspace_path)}</span>
          {session.last_model !== null && <span title={session.last_model}>{modelName(session.last_model)}</span>}
          <SourceFacts session={session} />
        </p>
      </div>
      <dl class="session-costs">
        <div>
          <dt>{session.is_worker ? 'This worker' : 'Planner'}</dt>
          <dd>
            <Money usd={fromPusd(own)} />
          </dd>
        </div>
        <div>
          <dt>Workers</dt>
          <dd>
            <Money usd={fromPusd(workers)} />
          </dd>
        </div>
        <div>
          <dt>Total</dt>
          <dd>
            <Money usd={fromPusd(sumPusd([own, workers]))} />
          </dd>
        </div>
      </dl>
      <Cap session={session} onChanged={onChanged} />
    </header>
  );
}

/** As followed, or as read where that is further on: neither ever shrinks. */
function computeCosts(session: Session, live: LiveSession): readonly [bigint, bigint] {
  const [root, ...workers] = live.nodes;
  const followed = sumPusd(workers.map(({ cost }) => cost));
  const larger = (a: bigint, b: bigint) => (a > b ? a : b);
  return [
    larger(root?.cost ?? 0n, toPusd(session.cost_so_far_usd)),
    larger(followed, toPusd(session.workers_cost_usd)),
  ];
}

/** The newest turns, read again when one has begun or ended. */
function useTurns(sessionId: string, live: LiveSession): ReadonlyMap<string, Turn> {
  const { client, reportFailure } = useApi();
  const [turns, setTurns] = useState<readonly Turn[]>([]);
  // A turn may begin and end between two drawings, and leave everything else as it was.
  const stamp = `${sessionId} ${live.turnsSeen}`;
  useEffect(() => {
    const gone = new AbortController();
    client.listTurns(sessionId, { limit: TURNS }, { signal: gone.signal }).then(
      (list) => setTurns(list.turns),
      (error) => gone.signal.aborted || reportFailure(error),
    );
    return () => gone.abort();
  }, [client, reportFailure, sessionId, stamp]);
  return useMemo(() => new Map(turns.map((turn) => [turn.id, turn])), [turns]);
}
