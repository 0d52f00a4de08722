// Three nodes of which one after the other is killed, with sessions at work on all of them: what was done and seen (16 §13).
import path from 'node:path';
import { type Nodes, PLANNER, startNodes, type TestNode } from '../../support/nodes.ts';
import { allEnded, message, type PlannedWork, pause, plannedWork } from '../../support/planned-work.ts';
import { until } from '../../support/until.ts';
import { insisting } from '../insist.ts';
import { type Subscriber, subscribe } from './subscriber.ts';

export interface StormOptions {
  readonly database: string;
  readonly nats: string | null;
  /** Its length; with `kills` the most that it takes, on a machine that is busy with other work. */
  readonly seconds: number;
  /** Ends it when nodes were killed so many times, each while another one is up, at random moments. */
  readonly kills?: number;
  readonly sessions: number;
  /** What the models answer; absent = the planned work. */
  readonly plan?: Parameters<typeof plannedWork>[2];
  /** Keys of the configuration, of every node. @param root the shared root */
  readonly set?: (root: string) => Readonly<Record<string, unknown>>;
  /** Fills the workspace of a session before it is opened. */
  readonly prepare?: (workspace: string) => void;
  /** Is awaited behind each turn, while nodes are killed. */
  readonly afterTurn?: (ended: EndedTurn) => Promise<void>;
}

export interface EndedTurn {
  readonly nodes: Nodes;
  readonly workspace: string;
  readonly turn_id: string;
}

export interface Storm {
  readonly nodes: Nodes;
  readonly work: PlannedWork;
  readonly subscribers: readonly Subscriber[];
  /** Ids of the turns whose receipt came. */
  readonly turns: readonly string[];
  readonly kills: number;
  /**
   * Model calls that were open when their tree lost its node, summed over the losses: at kills, and where a busy machine
   * let a node stand still for longer than its lease.
   */
  readonly openAtLosses: number;
  /** After the last new turn, until all was quiet, ms. */
  readonly quietAfter: number;
  close(): Promise<void>;
}

const BETWEEN_KILLS_MS = 2000;
const DOWN_MS = 1000;
/** The least between two of a number of kills, beside what the start of a node takes. */
const LEAST_BETWEEN_MS = 400;
const POLL_MS = 50;
const QUIET_SECONDS = 60;
const HOUR_MS = 3_600_000;
/** One is right, one an hour ahead, one an hour behind. */
const SKEWS = [0, HOUR_MS, -HOUR_MS];
const SKEWED_CLOCK = path.resolve(import.meta.dirname, '../../support/skewed-clock.cjs');

const chance = (most: number) => Math.random() * most;
const any = <T>(list: readonly T[]): T => list[Math.floor(chance(list.length))]!;

/** Each commit's number beside each of its events. */
const SEQ_OF_EVENTS = `
  CREATE TABLE storm_seq (event_id text PRIMARY KEY, root text, seq bigint, parent text);
  CREATE FUNCTION storm_note() RETURNS trigger LANGUAGE plpgsql AS $$
  BEGIN
    INSERT INTO storm_seq SELECT new.id, t.root_session_id, t.seq, new.parent_event_id
      FROM event_sessions k JOIN sessions s ON s.id = k.session_id JOIN trees t ON t.root_session_id = s.root_session_id
      WHERE k.session_key = new.session_key;
    RETURN new;
  END $$;
  CREATE CONSTRAINT TRIGGER storm_note AFTER INSERT ON event_rows DEFERRABLE INITIALLY DEFERRED
    FOR EACH ROW EXECUTE FUNCTION storm_note();`;

/**
 * The open calls of each tree at the moment that it loses its node, or is claimed anew by the one that has it: that one
 * dropped it when no heartbeat came through in time, and a late one did.
 */
const CALLS_OPEN_AT_LOSSES = `
  CREATE TABLE storm_losses (open bigint);
  CREATE FUNCTION storm_loss() RETURNS trigger LANGUAGE plpgsql AS $$
  BEGIN
    INSERT INTO storm_losses SELECT count(*) FROM sessions s
      JOIN events c ON c.session_id = s.id AND c.type = 'llm.call_started'
      WHERE s.root_session_id = old.root_session_id AND NOT EXISTS (
        SELECT 1 FROM events e WHERE e.parent_event_id = c.id AND e.type IN ('llm.call_completed', 'llm.call_failed'));
    RETURN new;
  END $$;
  CREATE TRIGGER storm_loss AFTER UPDATE ON trees FOR EACH ROW
    WHEN (old.owner_node IS NOT NULL
      AND (new.owner_node, new.owner_epoch) IS DISTINCT FROM (old.owner_node, old.owner_epoch))
    EXECUTE FUNCTION storm_loss();`;

const OWNED_BY_OTHERS = 'SELECT 1 FROM trees WHERE owner_node NOT IN (SELECT id FROM nodes WHERE name = ANY ($1))';

export async function storm({ database, nats, seconds, sessions, ...rest }: StormOptions): Promise<Storm> {
  const { plan, kills: wanted, set: setIn = () => ({}), prepare = () => {}, afterTurn = async () => {} } = rest;
  const work = plannedWork(() => 50 + chance(200), undefined, plan);
  const set = nats === null ? {} : { 'nats.url': nats };
  const closing: (() => void | Promise<void>)[] = [];
  const close = async () => {
    for (const part of closing.splice(0).reverse()) await part();
  };
  const nodes = await startNodes({
    database,
    answer: work.answer,
    set: { ...set, 'log.level': 'warn' },
    atEnd: (part) => void closing.push(part),
  });
  /** By place, null while it is down. */
  const up: (TestNode | null)[] = SKEWS.map(() => null);
  const started = SKEWS.map(() => 0);
  let last = '';

  async function raise(at: number): Promise<void> {
    started[at]! += 1;
    const skew = SKEWS[at]!;
    const env = skew === 0 ? {} : { CLOCK_SKEW_MS: String(skew), NODE_OPTIONS: `--require ${SKEWED_CLOCK}` };
    // A name is free only when the lease of the one who died is over.
    up[at] = await nodes.start(`node-${at}-${started[at]}`, { env, set: setIn(nodes.root) });
  }
  const alive = () => up.filter((node) => node !== null);
  const nodeUrl = () => {
    const [some] = alive();
    last = some === undefined ? last : any(alive()).url;
    return last;
  };

  await Promise.all(SKEWS.map((_, at) => raise(at)));
  await nodes.rows(SEQ_OF_EVENTS);
  await nodes.rows(CALLS_OPEN_AT_LOSSES);

  let working = true;
  const turns: string[] = [];
  const subscribers: Subscriber[] = [];
  const post = insisting(nodeUrl);

  async function oneSession(name: string): Promise<void> {
    const workspace = nodes.workspace(name);
    prepare(workspace);
    const { id } = await post('/sessions', `session ${name}`, {
      workspace_path: workspace,
      initial_active_model: PLANNER,
    });
    const subscriber = subscribe(id, nodeUrl);
    subscribers.push(subscriber);
    await until(() => subscriber.since !== null, QUIET_SECONDS);
    // One turn in any case, however long a busy machine took to get here.
    for (let n = 1; n === 1 || working; n++) {
      const turn = `${name}.${n}`;
      const { turn_id } = await post(`/sessions/${id}/turns`, `turn ${turn}`, { content: message(turn) });
      turns.push(turn_id);
      await until(() => subscriber.heard(turn_id), seconds + 2 * QUIET_SECONDS);
      await afterTurn({ nodes, workspace, turn_id });
    }
  }

  const driven = Promise.all(Array.from({ length: sessions }, (_, i) => oneSession(`s${i}`)));
  driven.catch(() => {});
  let kills = 0;
  const raised: Promise<void>[] = [];
  const over = performance.now() + seconds * 1000;
  const least = wanted === undefined ? 1 : 2;
  const listStanding = () => [...up.keys()].filter((at) => up[at] !== null);
  const atRandom = (from: number, to: number) => (wanted === undefined ? to : from + chance(to - from));
  while (performance.now() < over && kills !== wanted) {
    await pause(atRandom(LEAST_BETWEEN_MS, BETWEEN_KILLS_MS));
    while (listStanding().length < least && performance.now() < over) await pause(POLL_MS);
    const standing = listStanding();
    if (standing.length < least) continue;
    const at = any(standing);
    const node = up[at]!;
    up[at] = null;
    await node.kill();
    kills += 1;
    raised.push(pause(atRandom(0, DOWN_MS)).then(() => raise(at)));
  }
  working = false;
  await Promise.all(raised);
  const from = performance.now();
  await driven;
  await allEnded(nodes, QUIET_SECONDS);
  const quietAfter = performance.now() - from;
  // One that was killed behind its last turn owns the tree until its lease is over; then a live one lets it go.
  const living = alive().map(({ name }) => name);
  await until(async () => (await nodes.rows(OWNED_BY_OTHERS, living)).length === 0, QUIET_SECONDS);
  for (const subscriber of subscribers) await subscriber.stop();
  await Promise.all(alive().map((node) => node.stop()));
  const [open] = await nodes.rows('SELECT coalesce(sum(open), 0) AS n FROM storm_losses');
  return { nodes, work, subscribers, turns, kills, openAtLosses: Number(open!.n), quietAfter, close };
}
