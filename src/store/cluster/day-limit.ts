// The part of a daily limit that this node may spend without a query: an allowance, raised under a lock (16 §8).

import { DAY_MS, HOUR_MS } from '#core/policy/analytics/rollup.ts';
import type { Logger } from '#core/ports/logger.ts';
import type { DayLimit, Share, SharedLimit } from '#core/ports/shared-limit.ts';
import { type Clock, sleep, type Timer } from '#protocol/clock.ts';
import { AppError } from '#protocol/errors.ts';
import { type Pusd, ZERO_PUSD } from '#protocol/money.ts';
import { isTransient } from '../postgres/connection/faults.ts';
import { AWAIT_TURN, type Pool, type PoolTx } from '../postgres/connection/pool.ts';
import { OF_CALLER, OF_EXPERIMENT, OF_OWNER, WHOLE_DAYS } from '../read/spend.ts';
import type { HeldTrees } from './tree-claims.ts';

export interface DayLimitOptions {
  readonly pool: Pool;
  readonly trees: Pick<HeldTrees, 'node'>;
  readonly leaseSeconds: number;
  readonly clock: Clock;
  readonly log: Logger;
}

export interface AllowedDayLimit extends DayLimit {
  close(): void;
}

/** The allowance of one pool. The stored allowance is never less than `open`, and `open` never less than `reserved`. */
interface Allowance {
  /** This node's id when the allowance was stored: it ends with that id's lease. */
  node: string | null;
  stored: Pusd;
  /** The rest of the allowance. A call that ends takes its reservation off it, because its cost is in the ledger. */
  open: Pusd;
  /** Money that running calls hold. */
  reserved: Pusd;
  /** No call took money since the allowance was last lowered. */
  idle: boolean;
  /** The chain of its statements, which run one after the other. */
  turn: Promise<unknown>;
  waiting: number;
}

const ROOM = `SELECT
    (SELECT coalesce(CAST(sum(a.open_pusd) AS bigint), 0) FROM day_allowances a JOIN nodes n ON n.id = a.node_id
      WHERE a.pool = @pool AND a.node_id <> @node AND n.lease_until > now()) AS elsewhere,
    (SELECT count(*) FROM nodes n WHERE n.lease_until > now()) AS nodes`;
const RAISE = `INSERT INTO day_allowances (pool, node_id, open_pusd)
  SELECT CAST(@pool AS text), n.id, CAST(@open AS bigint) FROM nodes n WHERE n.id = @node AND n.lease_until > clock_timestamp()
  ON CONFLICT (pool, node_id) DO UPDATE SET open_pusd = excluded.open_pusd`;
const LOWER = 'UPDATE day_allowances SET open_pusd = @open WHERE pool = @pool AND node_id = @node';

const AGAIN_MS = 100;
/** Part of the lease after which this node holds nothing any more (16 §4.4). */
const SAFE = 0.8;

type Answer = { readonly open: Pusd } | { readonly elsewhere: Pusd };

export function createDayLimit({ pool, trees, leaseSeconds, clock, log }: DayLimitOptions): AllowedDayLimit {
  const leaseMs = leaseSeconds * 1000;
  const allowances = new Map<string, Allowance>();

  function getAllowance(name: string): Allowance {
    const known = allowances.get(name);
    if (known !== undefined) return known;
    const none: Allowance = {
      node: null,
      stored: ZERO_PUSD,
      open: ZERO_PUSD,
      reserved: ZERO_PUSD,
      idle: false,
      turn: Promise.resolve(),
      waiting: 0,
    };
    allowances.set(name, none);
    return none;
  }

  const fits = (own: Allowance, amount: Pusd) => own.node === trees.node && own.reserved + amount <= own.open;

  function grantShare(own: Allowance, amount: Pusd): Share {
    own.reserved = (own.reserved + amount) as Pusd;
    own.idle = false;
    let released = false;
    return {
      ok: true,
      release() {
        if (released) return;
        released = true;
        own.reserved = (own.reserved - amount) as Pusd;
        const open = own.open - amount;
        own.open = (open > own.reserved ? open : own.reserved) as Pusd;
      },
    };
  }

  function queueWork<T>(own: Allowance, work: () => Promise<T>): Promise<T> {
    own.waiting += 1;
    const done = own.turn.then(work).finally(() => {
      own.waiting -= 1;
    });
    own.turn = done.catch(() => {});
    return done;
  }

  async function raiseAllowance(own: Allowance, limit: SharedLimit, amount: Pusd): Promise<Share> {
    // An earlier request may have raised it enough.
    if (fits(own, amount)) return grantShare(own, amount);
    const { node } = trees;
    // Money that is released from here on may or may not be in the ledger yet: it counts as held.
    const before = own.reserved;
    const answer = await ask({ ...limit, node }, (before + amount) as Pusd);
    if ('elsewhere' in answer) return { ok: false, elsewhere: answer.elsewhere };
    own.node = node;
    own.stored = answer.open;
    own.open = (answer.open - (before - own.reserved)) as Pusd;
    return grantShare(own, amount);
  }

  async function ask(limit: SharedLimit & { readonly node: string }, needed: Pusd): Promise<Answer> {
    const from = clock.monotonic();
    for (;;) {
      try {
        return await pool.transaction((tx) => raiseTo(tx, limit, needed));
      } catch (error) {
        if (!isTransient(error)) throw error;
        if (clock.monotonic() - from >= SAFE * leaseMs) throw LAPSED();
      }
      await sleep(clock, AGAIN_MS);
    }
  }

  /**
   * Runs with the heartbeat: returns what ended calls left over, and allowances that no call used since (16 §8). It takes
   * its turn behind the requests that wait: refused ones come again and again, and must not keep it from its turn.
   */
  function lower(name: string, own: Allowance): Promise<void> {
    return queueWork(own, async () => {
      if (own.node !== trees.node) return;
      if (own.idle) own.open = own.reserved;
      own.idle = true;
      const { open } = own;
      if (open === own.stored) return;
      await pool.send(LOWER, { pool: name, node: own.node, open });
      own.stored = open;
    });
  }

  let timer: Timer;
  const beat = () => {
    timer = clock.after(leaseMs / 5, () => {
      void Promise.all([...allowances].map(([name, own]) => lower(name, own)))
        // The stored allowance stays too high, which is safe.
        .catch((err: unknown) => log.warn({ err }, 'the allowance of the day could not be lowered'))
        .finally(beat);
    });
  };
  beat();

  return {
    take(limit, amount) {
      const own = getAllowance(limit.pool);
      if (own.waiting === 0 && fits(own, amount)) return grantShare(own, amount);
      return queueWork(own, () => raiseAllowance(own, limit, amount));
    },
    close: () => timer.cancel(),
  };
}

const LAPSED = () => new AppError('storage_unavailable', 'this node has no valid lease at the moment');

/** One node at a time. Meanwhile other nodes may return money and take none. */
async function raiseTo(tx: PoolTx, limit: SharedLimit & { readonly node: string }, needed: Pusd): Promise<Answer> {
  tx.run(AWAIT_TURN, ['day limit']);
  // Reads the allowances of other nodes before the ledger: money that they return in between is in the ledger by then.
  const [room, ledger] = await Promise.all([
    tx.send<{ elsewhere: Pusd; nodes: bigint }>(ROOM, limit, 'exact'),
    readLedger(tx, limit),
  ]);
  const { elsewhere, nodes } = room.rows[0]!;
  const rest = limit.limit - ledger.rows[0]!.pusd - elsewhere - needed;
  if (rest < 0n) return { elsewhere };
  const open = (needed + slack(limit.limit, rest, nodes)) as Pusd;
  tx.run(RAISE, { pool: limit.pool, node: limit.node, open }, ({ changes }) => {
    if (changes === 0) throw LAPSED();
  });
  return { open };
}

function readLedger(tx: PoolTx, { since, caller, owner, experiment }: SharedLimit) {
  if (experiment !== null) return tx.send<{ pusd: Pusd }>(OF_EXPERIMENT, [experiment, experiment], 'exact');
  if (owner !== null) return tx.send<{ pusd: Pusd }>(OF_OWNER, [owner, since / DAY_MS], 'exact');
  if (caller !== null) return tx.send<{ pusd: Pusd }>(OF_CALLER, [since / HOUR_MS, caller], 'exact');
  return tx.send<{ pusd: Pusd }>(WHOLE_DAYS, [since / DAY_MS], 'exact');
}

/** The extra amount that further calls may take without a query; its rest stays unspent. */
function slack(limit: Pusd, rest: bigint, nodes: bigint): bigint {
  const small = limit / 50n;
  const fair = rest / 4n / (nodes > 0n ? nodes : 1n);
  if (small < fair) return small;
  return fair;
}
