// The metrics of a server itself: commits, event loop, and in a cluster lease, trees, forwards, connections and NATS (18 §2).
import { monitorEventLoopDelay, performance } from 'node:perf_hooks';
import { type Journal, JournalConflict, TreeLost } from '#core/ports/journal-writer.ts';
import type { CommitOutcome, ForwardOutcome, Meter, NodeFigures, WaitingFigures } from '#core/ports/meter.ts';
import type { Clock } from '#protocol/clock.ts';
import { createHistogram, createSums, type Family } from './metrics.ts';

const COMMIT_OUTCOMES: readonly CommitOutcome[] = ['committed', 'refused', 'failed'];
const FORWARD_OUTCOMES: readonly ForwardOutcome[] = ['answered', 'not_taken', 'broken', 'failed'];
const COMMIT_SECONDS = [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 5];
const FORWARD_SECONDS = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60];
const QUANTILES = [0.5, 0.99, 1];
/** A timer of this interval measures the delay: the time that it comes late. */
const RESOLUTION_MS = 20;

export interface NodeMetrics {
  readonly meter: Meter;
  families(now: NodeState): Family[];
  /** Ends the measurement of the event loop. */
  close(): void;
}

export interface NodeState {
  readonly node: NodeFigures | null;
  readonly waiting: WaitingFigures;
}

export function createNodeMetrics(): NodeMetrics {
  const commits = createSums('metis_commits_total', 'Commits of the journal that ended.');
  const commitTime = createHistogram('metis_commit_seconds', 'Time of the commits that were stored.', COMMIT_SECONDS);
  const forwards = createSums('metis_forwards_total', 'Attempts to forward a request to the node that owns its tree.');
  const forwardTime = createHistogram(
    'metis_forward_seconds',
    'Time until the answer of another node began.',
    FORWARD_SECONDS,
  );
  for (const outcome of COMMIT_OUTCOMES) commits.add({ outcome }, 0n);
  for (const outcome of FORWARD_OUTCOMES) forwards.add({ outcome }, 0n);
  commitTime.declare({});
  forwardTime.declare({});
  const delay = monitorEventLoopDelay({ resolution: RESOLUTION_MS });
  delay.enable();

  function listFamilies({ node, waiting }: NodeState): Family[] {
    const everywhere = [
      commits.family(),
      commitTime.family(),
      ...measureEventLoop(delay),
      gauge(
        'metis_deliveries_waiting',
        'Results of background workers that wait for their turn.',
        waiting.deliveries_waiting,
      ),
    ];
    if (node === null) return everywhere;
    return [...everywhere, ...describeNode(node, waiting), forwards.family(), forwardTime.family()];
  }
  return {
    meter: {
      addCommit(outcome, seconds) {
        commits.add({ outcome });
        if (outcome === 'committed') commitTime.observe({}, seconds);
      },
      addForward(outcome, seconds) {
        forwards.add({ outcome });
        if (seconds !== null) forwardTime.observe({}, seconds);
      },
    },
    families: listFamilies,
    close: () => void delay.disable(),
  };
}

/** Quantiles since the last call. */
function measureEventLoop(delay: ReturnType<typeof monitorEventLoopDelay>): Family[] {
  const late = (quantile: number) => {
    if (delay.count === 0) return 0;
    return Math.max(0, roundSeconds(delay.percentile(quantile * 100) / 1e9 - RESOLUTION_MS / 1000));
  };
  const points = QUANTILES.map((quantile) => ({ labels: { quantile: String(quantile) }, value: late(quantile) }));
  delay.reset();
  const busy = performance.eventLoopUtilization().active / 1000;
  return [
    {
      ...{ name: 'metis_event_loop_delay_seconds', help: 'How late timers come, since the last request.' },
      ...{ type: 'gauge', whole: false, points },
    },
    {
      ...{ name: 'metis_event_loop_busy_seconds_total', help: 'Time in which the event loop did not wait.' },
      ...{ type: 'counter', whole: false, points: [{ labels: {}, value: roundSeconds(busy) }] },
    },
  ];
}

function describeNode(node: NodeFigures, waiting: WaitingFigures): Family[] {
  const { used, idle } = node.connections;
  return [
    gauge('metis_lease_age_seconds', 'Age of the confirmed lease.', roundSeconds(node.lease_age_seconds)),
    gauge('metis_trees_held', 'Session trees that this node owns.', node.trees_held),
    labelled('counter', 'metis_takeovers_total', 'Trees taken over from another owner.', { cause: node.takeovers }),
    counter('metis_trees_dropped_total', 'Trees given up because lease or commit was lost.', node.trees_dropped),
    labelled('gauge', 'metis_database_connections', 'Open connections to PostgreSQL.', { state: { used, idle } }),
    gauge('metis_database_waiting', 'Work that waits for a connection.', node.connections_waiting),
    gauge('metis_notices_waiting', 'Webhook notices that are still to be sent.', waiting.notices_waiting ?? 0),
    ...describeNats(node, waiting),
  ];
}

function describeNats({ is_nats_connected: isConnected }: NodeFigures, waiting: WaitingFigures): Family[] {
  if (isConnected === null) return [];
  const lag = waiting.nats_round_trip_seconds;
  const trip = gauge(
    'metis_nats_round_trip_seconds',
    'Time of a question to NATS and its answer.',
    roundSeconds(lag ?? 0),
  );
  return [
    gauge('metis_nats_connected', 'Whether NATS is connected: 1 or 0.', isConnected ? 1 : 0),
    // A value that is not known is no 0.
    lag === null ? { ...trip, points: [] } : trip,
  ];
}

type Sample = Extract<Family, { readonly type: 'gauge' | 'counter' }>;

const gauge = (name: string, help: string, value: number): Sample => ({
  ...{ name, help, type: 'gauge', whole: Number.isInteger(value) },
  points: [{ labels: {}, value }],
});

const counter = (name: string, help: string, value: number): Sample => ({
  ...gauge(name, help, value),
  type: 'counter',
});

/** @param values by the name of the one label */
function labelled(
  type: Sample['type'],
  name: string,
  help: string,
  values: Readonly<Record<string, Readonly<Record<string, number>>>>,
): Sample {
  const points = Object.entries(values).flatMap(([label, series]) =>
    Object.entries(series).map(([text, value]) => ({ labels: { [label]: text }, value })),
  );
  return { name, help, type, whole: true, points };
}

/** To microseconds, so that no value is written with an exponent. */
const roundSeconds = (seconds: number) => Math.round(seconds * 1e6) / 1e6;

/** The journal, with each commit counted and timed. */
export function measureCommits(journal: Journal, { addCommit }: Meter, clock: Clock): Journal {
  return {
    ...journal,
    commit(batch) {
      const from = clock.monotonic();
      const since = () => (clock.monotonic() - from) / 1000;
      return journal.commit(batch).then(
        (events) => {
          addCommit('committed', since());
          return events;
        },
        (error: unknown) => {
          const isRefusal = error instanceof JournalConflict || error instanceof TreeLost;
          addCommit(isRefusal ? 'refused' : 'failed', since());
          throw error;
        },
      );
    },
  };
}
