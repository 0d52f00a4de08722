// The costs of earlier work in memory, by shape: filled at the start, kept up by each end of a turn, and on several nodes read again (21 §1).
import { type Clock, sleep } from '#protocol/clock.ts';
import type { Pusd } from '#protocol/money.ts';
import type { CostHistory, TreeCost, WorkShape } from '#protocol/what-if/cost-ahead.ts';
import { describeHistory, MAX_SAMPLES } from '../policy/learning/forecast.ts';
import type { CostPlace, Forecasts, TreeCostReader } from '../ports/learned-turns.ts';
import type { Logger } from '../ports/logger.ts';

/** Trees that are read at the start, in about 50 ms. Shapes that have none among them are read when they occur. */
const READ_AT_START = 20_000;
/** Costs in memory, in about 10 MB; the shapes used last stay. */
const MAX_COSTS = 200_000;
/** Other nodes' trees are read here after this time; nodes' clocks and commits may differ by the margin. */
const READ_AGAIN_MS = 30_000;
const MARGIN_MS = 60_000;
const MAX_CHANGED = 1000;

interface Costs {
  /** Newest last, at most `MAX_SAMPLES`. */
  readonly list: Pusd[];
  /** The same in ascending order; null = not asked for yet. */
  ascending: Pusd[] | null;
}

interface ForecastDeps {
  readonly store: { readonly treeCosts: TreeCostReader };
  readonly clock: Clock;
  readonly log: Logger;
  /** True = no other node adds costs. */
  readonly alone: boolean;
  readonly readAtStart?: number;
  readonly maxCosts?: number;
}

export interface ForecastMemory extends Forecasts {
  /** Call once, before the first turn. Never rejects: without the store there are no forecasts. */
  load(): Promise<void>;
  /** Ends the reading of other nodes' costs. */
  close(): Promise<void>;
}

export function createForecastMemory(deps: ForecastDeps): ForecastMemory {
  const { clock, log } = deps;
  const { treeCosts } = deps.store;
  const { readAtStart = READ_AT_START, maxCosts = MAX_COSTS } = deps;
  const places = new Map<string, Costs>();
  /** Places that are being read; an addition meanwhile makes them be read again. */
  const reading = new Map<string, Promise<void>>();
  const closing = new AbortController();
  let held = 0;
  /** The store has costs of places that memory does not have. */
  let isPartial = true;
  let additions = 0;
  let following: Promise<void> = Promise.resolve();
  let completing: Promise<void> = Promise.resolve();

  function touchCosts(key: string): Costs | null {
    const costs = places.get(key);
    if (costs === undefined) return null;
    places.delete(key);
    places.set(key, costs);
    return costs;
  }

  function keepCosts(key: string, list: Pusd[]): void {
    held += list.length - (places.get(key)?.list.length ?? 0);
    places.delete(key);
    places.set(key, { list, ascending: null });
    dropOldest(key);
  }

  /** @param newest stays */
  function dropOldest(newest: string): void {
    for (const [oldest, { list: dropped }] of places) {
      if (held <= maxCosts || oldest === newest) break;
      places.delete(oldest);
      held -= dropped.length;
      isPartial = true;
    }
  }

  function addTo(place: CostPlace, cost: Pusd): void {
    const key = toKey(place);
    const costs = touchCosts(key);
    if (costs === null && isPartial) {
      readInBackground(place);
      return;
    }
    if (costs === null) keepCosts(key, [cost]);
    else {
      held += appendCost(costs, cost);
      dropOldest(key);
    }
    if (reading.has(key)) readInBackground(place);
  }

  function readInBackground(place: CostPlace): void {
    void readPlace(place).catch(warnAboutRead);
  }

  /** A read that began before an addition is followed by another one. */
  function readPlace(place: CostPlace): Promise<void> {
    const key = toKey(place);
    const before = reading.get(key) ?? Promise.resolve();
    const mine = before
      .catch(() => {})
      .then(async () => {
        const found = await treeCosts.ofPlace(place, MAX_SAMPLES);
        keepCosts(key, found.toReversed());
      })
      .finally(() => {
        if (reading.get(key) === mine) reading.delete(key);
      });
    reading.set(key, mine);
    return mine;
  }

  function lookUp(work: WorkShape): CostHistory | null {
    const [own, all] = listCostPlaces(work).map(findCosts);
    return describeHistory({ workspace: own ? sortCosts(own) : [], server: all ? sortCosts(all) : [] });
  }

  /** A place that memory lacks is there for the next turn. */
  function findCosts(place: CostPlace): Costs | null {
    const costs = touchCosts(toKey(place));
    if (costs === null && isPartial) readInBackground(place);
    return costs;
  }

  async function readHistory(work: WorkShape): Promise<CostHistory | null> {
    if (isPartial) for (const place of listCostPlaces(work)) if (!places.has(toKey(place))) await readPlace(place);
    return lookUp(work);
  }

  async function readNewest(): Promise<readonly TreeCost[]> {
    for (;;) {
      const seen = additions;
      const newest = await treeCosts.newest(readAtStart);
      // What was added during the read may be missing in it.
      if (seen === additions) return newest;
    }
  }

  /** Returns the places that may have older costs too. */
  async function fillPlaces(): Promise<readonly CostPlace[]> {
    // A read that began before a purge may bring back what it deleted.
    await Promise.allSettled(reading.values());
    const newest = await readNewest();
    const found = new Map<string, { readonly place: CostPlace; readonly list: Pusd[] }>();
    for (const cost of newest)
      for (const place of listCostPlaces(cost)) {
        const key = toKey(place);
        const { list } = found.get(key) ?? found.set(key, { place, list: [] }).get(key)!;
        if (list.length < MAX_SAMPLES) list.push(cost.cost_pusd);
      }
    places.clear();
    held = 0;
    isPartial = newest.length >= readAtStart;
    // The places used last are last.
    const all = [...found].reverse();
    for (const [key, { list }] of all) keepCosts(key, list.toReversed());
    if (!isPartial) return [];
    return all
      .map(([, { place }]) => place)
      .filter((place) => (places.get(toKey(place))?.list.length ?? 0) < MAX_SAMPLES);
  }

  /** One after the other, behind the start. */
  async function readOlder(open: readonly CostPlace[]): Promise<void> {
    for (const place of open) {
      if (closing.signal.aborted) return;
      await readPlace(place);
      await new Promise((resolve) => setImmediate(resolve));
    }
  }

  async function followOthers(purge: string | null): Promise<void> {
    let seen = purge;
    for (let since = clock.now(); ; ) {
      await sleep(clock, READ_AGAIN_MS, closing.signal);
      const from = since - MARGIN_MS;
      since = clock.now();
      try {
        const last = await treeCosts.lastPurge();
        if (last !== seen) {
          completing = readOlder(await fillPlaces()).catch(warnAboutRead);
          seen = last;
          continue;
        }
        const changed = await treeCosts.changedSince(from, MAX_CHANGED);
        const found = new Map(changed.flatMap(listCostPlaces).map((place) => [toKey(place), place]));
        for (const place of found.values()) await readPlace(place);
      } catch (err) {
        warnAboutRead(err);
      }
    }
  }

  async function refill(): Promise<void> {
    try {
      completing = readOlder(await fillPlaces()).catch(warnAboutRead);
    } catch (err) {
      warnAboutRead(err);
    }
  }

  function warnAboutRead(err: unknown): void {
    log.warn({ err }, 'the costs of earlier turns could not be read; turns may have no forecast');
  }

  return {
    look: lookUp,
    read: readHistory,
    add: (cost) => {
      additions += 1;
      for (const place of listCostPlaces(cost)) addTo(place, cost.cost_pusd);
    },
    refresh: refill,
    load: async () => {
      const purge = deps.alone ? null : await treeCosts.lastPurge().catch(() => null);
      await refill();
      if (!deps.alone) following = followOthers(purge).catch(() => {});
    },
    close: async () => {
      closing.abort();
      await Promise.all([following, completing]);
      await Promise.allSettled(reading.values());
    },
  };
}

/** The workspace's own, then the server's. */
function listCostPlaces({ workspace_path, is_worker, shape_sig, model }: WorkShape): [CostPlace, CostPlace] {
  const place = { is_worker, shape_sig, model };
  return [
    { ...place, workspace_path },
    { ...place, workspace_path: null },
  ];
}

/** Only the last part may have a line break. */
function toKey({ workspace_path, is_worker, shape_sig, model }: CostPlace): string {
  return `${is_worker}\n${shape_sig}\n${model}\n${workspace_path ?? ''}`;
}

function sortCosts(costs: Costs): readonly Pusd[] {
  costs.ascending ??= costs.list.toSorted((a, b) => Number(a > b) - Number(a < b));
  return costs.ascending;
}

/** Returns how many costs there are more. Each turn does this, so both orders are changed and not made again. */
function appendCost({ list, ascending }: Costs, cost: Pusd): number {
  list.push(cost);
  ascending?.splice(findPosition(ascending, cost), 0, cost);
  if (list.length <= MAX_SAMPLES) return 1;
  const oldest = list.shift()!;
  ascending?.splice(findPosition(ascending, oldest), 1);
  return 0;
}

/** Of the first cost that is not below this one. */
function findPosition(ascending: readonly Pusd[], cost: Pusd): number {
  let from = 0;
  let until = ascending.length;
  while (from < until) {
    const middle = (from + until) >> 1;
    if (ascending[middle]! < cost) from = middle + 1;
    else until = middle;
  }
  return from;
}
