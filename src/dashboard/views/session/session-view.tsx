// One session: its conversation, its workers live, its timeline, and everything a person can do about it (17 §3).
import { useEffect, useMemo, useRef, useState } from 'preact/hooks';
import type { Session, Turn } from '#client/client.ts';
import { ApprovalCard } from '#dashboard/approval/approval-card.tsx';
import { InSession, May, useApi } from '#dashboard/data/api.ts';
import { getTitle, usePolled } from '#dashboard/data/queries.ts';
import { baseName, describeState, formatNumber } from '#dashboard/format/format.ts';
import { CopyButton } from '#dashboard/parts/copy-button.tsx';
import { useMoveByKey } from '#dashboard/parts/keys.ts';
import {
  Badge,
  Elapsed,
  Icon,
  isSessionSimulated,
  ModelName,
  Money,
  Simulated,
  SourceFacts,
  State,
} from '#dashboard/parts/labels.tsx';
import { Empty, Failure, Skeleton } from '#dashboard/parts/panels.tsx';
import { formatPlace, type Place } from '#dashboard/shell/place.ts';
import { fromPusd, sumPusd, toPusd } from '#protocol/money.ts';
import { nameReference } from '#protocol/text/model-reference.ts';
import { CompareView, ForkOrigin } from './branch.tsx';
import { Cap, findSufficientCap, Interrupted, RaiseCap, useMetCap } from './cap-controls.tsx';
import { Composer, getAddressee } from './composer.tsx';
import { Conversation } from './conversation.tsx';
import { FailedTurn } from './failed-turn.tsx';
import type { LiveNode, LiveSession } from './live/live-node.ts';
import { groupWaits } from './live/waits.ts';
import { findNodeTask, LiveTree } from './live-tree.tsx';
import { OwnerFacts, Sharing } from './sharing.tsx';
import { Timeline } from './timeline.tsx';
import { type Live, useLiveSession } from './use-live-session.ts';

// What the tree waits for at this moment, in one line (20 §6).

const NAMES = 3;

/** The line keeps its height while it is empty, so that the page does not move. */
function WaitingLine(props: { readonly waiting: Session['waiting_on']; readonly nodes: readonly LiveNode[] }) {
  const groups = groupWaits(props.waiting, props.nodes);
  return (
    <p class="waiting-line" role="status">
      {groups.length > 0 && <Icon name="clock" />}
      {groups.map(({ doing, names, since, asks }) => (
        <span key={doing} class={asks ? 'asks' : undefined}>
          {describeNames(names)} {doing} <Elapsed from={since} to={null} />
        </span>
      ))}
    </p>
  );
}

/** `planner is`, `worker 1, worker 2 are`. */
function describeNames(names: readonly string[]): string {
  const [first, ...others] = names;
  if (others.length === 0) return `${first} is`;
  if (names.length <= NAMES) return `${names.join(', ')} are`;
  return `${names.slice(0, NAMES).join(', ')} and ${names.length - NAMES} more are`;
}

const TABS = {
  conversation: 'Conversation',
  tree: 'Live tree',
  timeline: 'Timeline',
  compare: 'Compare',
} as const;
type Tab = keyof typeof TABS;

/** What the address names; a session of the gateway opens on its timeline, since its client keeps the conversation. */
function chooseTab(place: Place, session: Session): Tab {
  const named = place.query.get('tab');
  if (named !== null && Object.hasOwn(TABS, named)) return named as Tab;
  return getFirstTab(session);
}

/** Only a fork has a session to compare it with, unless the address names one. */
function listTabs({ forked_from }: Session, open: Tab): readonly Tab[] {
  const tabs = Object.keys(TABS) as Tab[];
  return tabs.filter((tab) => tab !== 'compare' || tab === open || forked_from !== null);
}

function getFirstTab({ door }: Session): Tab {
  if (door === 'gateway') return 'timeline';
  return 'conversation';
}

/** The address of a session alone is that of its first tab. */
function formatTab(session: Session, tab: Tab): string {
  const place = formatPlace('sessions', session.id);
  if (tab === getFirstTab(session)) return place;
  return `${place}?tab=${tab}`;
}
const TURNS = 200;
/** Drawn at once, oldest first. */
const APPROVALS = 5;

export function SessionView({ sessionId, place }: { readonly sessionId: string; readonly place: Place }) {
  const { client } = useApi();
  const followed = useLiveSession(sessionId);
  const { live, error } = followed;
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
  const sufficient = findSufficientCap(session, turns.values().next().value, met);
  if (session === null) {
    const reason = read.error ?? error;
    return (
      <div class="view session-view">
        <header class="view-head">
          <h1>Session</h1>
        </header>
        {reason === null && <Skeleton rows={8} height={72} />}
        {reason !== null && <Failure error={reason} title="The session could not be loaded" retry={read.reload} />}
      </div>
    );
  }
  const tab = chooseTab(place, session);
  const root = live.nodes[0];
  const running = session.status === 'running' || root?.state === 'running';
  return (
    <InSession session={session}>
      <div class="view session-view">
        <Head session={session} live={live} turns={turns} sufficient={sufficient} onChanged={read.reload} />
        <nav class="tabs" aria-label="Parts of the session">
          {listTabs(session, tab).map((id) => (
            <a key={id} href={formatTab(session, id)} aria-current={id === tab ? 'page' : undefined}>
              {TABS[id]}
            </a>
          ))}
        </nav>
        {error !== null && <Failure error={error} title="The live updates have stopped" />}
        <Part place={place} tab={tab} session={session} followed={followed} turns={turns} running={running} />
        <div class="session-foot">
          <WaitingLine waiting={session.waiting_on} nodes={live.nodes} />
          {live.confirmations.size > 0 && <OpenApprovals live={live} />}
          {session.failure !== null && session.status !== 'ended' && (
            <FailedTurn
              key={session.failure.turn_id}
              session={session}
              failure={session.failure}
              onChanged={read.reload}
            />
          )}
          {session.current_turn_status === 'interrupted' && !session.is_worker && (
            <May operation="resumeTurn">
              <Interrupted session={session} met={met} sufficient={sufficient} onChanged={read.reload} />
            </May>
          )}
          {met !== null && session.current_turn_status !== 'interrupted' && session.status !== 'ended' && (
            <May operation="updateSession">
              <RaiseCap session={session} met={met} sufficient={sufficient} onChanged={read.reload} />
            </May>
          )}
          {session.status !== 'ended' && session.door !== 'gateway' && (running || !session.is_worker) && (
            <May operation="submitTurn">
              <Composer
                session={session}
                turnId={running ? openTurn(session, live, turns) : null}
                onChanged={read.reload}
              />
            </May>
          )}
        </div>
      </div>
    </InSession>
  );
}

function Part(props: {
  readonly place: Place;
  readonly tab: Tab;
  readonly session: Session;
  readonly followed: Live;
  readonly turns: ReadonlyMap<string, Turn>;
  readonly running: boolean;
}) {
  const { tab, session, turns } = props;
  const { live, frame, loadOlder } = props.followed;
  const labels = useMemo(
    () => new Map(live.nodes.map(({ session_id, label }) => [session_id, label])),
    [live, live.version],
  );
  if (tab === 'tree') return <LiveTree live={live} />;
  if (tab === 'compare') {
    const other = props.place.query.get('with') ?? session.forked_from?.session_id ?? null;
    return <CompareView session={session} other={other} />;
  }
  if (tab === 'timeline') return <Timeline session={session} turns={turns} version={live.version} labels={labels} />;
  if (live.messages.length > 0 || live.open.size > 0 || props.running)
    return <Conversation live={live} frame={frame} turns={turns} loadOlder={loadOlder} />;
  return (
    <div class="conversation">
      {session.forked_from === null ? (
        <NoMessages session={session} />
      ) : (
        <div class="conversation-inner">
          <ForkOrigin session={session} />
        </div>
      )}
    </div>
  );
}

/** The conversation of a gateway session belongs to its client, so there is no composer here. */
function NoMessages({ session }: { readonly session: Session }) {
  if (session.door === 'gateway')
    return (
      <Empty icon="sessions" title="The client keeps the conversation">
        <p>
          The calls pass through the gateway. The server stores their cost, not their content. Each call appears under
          “Timeline”.
        </p>
      </Empty>
    );
  return (
    <Empty icon="sessions" title="No messages yet">
      <p>
        <May operation="submitTurn">Write to {getAddressee(session)} below.</May> It works in {session.workspace_path}.
      </p>
    </Empty>
  );
}

/** The turn that runs, as followed; as read only where that is not known to be over. */
function openTurn(session: Session, live: LiveSession, turns: ReadonlyMap<string, Turn>): string | null {
  const { current_turn_id: read } = session;
  const followed = live.nodes[0]?.turn_id ?? null;
  if (followed !== null || read === null) return followed;
  if (turns.get(read)?.ended_at == null) return read;
  return null;
}

/** What is asked, in a box of its own that scrolls: the field below it stays where it is. */
function OpenApprovals({ live }: { readonly live: LiveSession }) {
  const more = live.confirmations.size - APPROVALS;
  const box = useMoveByKey('.approval', [...live.confirmations.keys()].join(' '));
  return (
    <section class="session-asked" aria-label="Open approvals" tabIndex={0} ref={box}>
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

function Head(props: {
  readonly session: Session;
  readonly live: LiveSession;
  readonly turns: ReadonlyMap<string, Turn>;
  readonly sufficient: string | null;
  readonly onChanged: () => void;
}) {
  const { session, live, turns, sufficient, onChanged } = props;
  const [own, workers] = computeCosts(session, live);
  return (
    <header class="view-head session-head">
      <Back session={session} />
      <div class="session-title">
        <h1 title={getTitle(session)}>{getTitle(session)}</h1>
        <p class="sub">
          {(session.is_worker || session.worker_name !== null) && (
            <Badge tone="worker">{session.worker_name ?? 'worker'}</Badge>
          )}
          <State state={describeState(session)} />
          {isSessionSimulated(session) && <Simulated />}
          <span title={session.workspace_path}>{baseName(session.workspace_path)}</span>
          {session.last_model !== null && <ModelName id={nameReference(session.last_model, session.last_effort)} />}
          <SourceFacts session={session} />
          <OwnerFacts session={session} />
        </p>
        <p class="sub session-id">
          <code>{session.id}</code>
          <CopyButton text={session.id} name="Copy the session id" />
          <Sharing session={session} onChanged={onChanged} />
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
      <Cap session={session} sufficient={sufficient} turns={turns} onChanged={onChanged} />
    </header>
  );
}

function Back({ session: { is_worker, parent_session_id: parent } }: { readonly session: Session }) {
  if (!is_worker || parent === null) return <BackTo place={formatPlace('sessions')} label="All sessions" />;
  return <BackTo place={formatPlace('sessions', parent)} label="Back to the planner" />;
}

function BackTo({ place, label }: { readonly place: string; readonly label: string }) {
  return (
    <a class="button ghost icon-only" href={place} aria-label={label}>
      <Icon name="back" />
    </a>
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
