// `POST /analytics/what-if`: what the same work would have cost under other rules, tiers or models (21 §2).
import { setImmediate } from 'node:timers/promises';
import { DAY_MS } from '#core/policy/analytics/rollup.ts';
import { unpackPayload } from '#core/policy/journal/stored-payload.ts';
import type { AdapterConfig } from '#core/policy/registry/adapter-config.ts';
import { createModelRegistry, type ModelRegistry } from '#core/policy/registry/model-registry.ts';
import { decideAgain, type RepeatWorld } from '#core/policy/routing/decide-again.ts';
import { mergePolicies, parsePolicyFile, type RoutingPolicies } from '#core/policy/routing/policy-file.ts';
import type { CallPricer, WhatIfFound, WhatIfQuery } from '#core/ports/report-reader.ts';
import type { CallFilter, WhatIf } from '#protocol/analytics.ts';
import type { PayloadOf } from '#protocol/event.ts';
import { fromPusd } from '#protocol/money.ts';
import type { Effort } from '#protocol/scalars.ts';
import { compareText } from '#protocol/text/compare-text.ts';
import { nameReference } from '#protocol/text/model-reference.ts';
import { isSimulated } from '#protocol/text/simulated.ts';
import type { EventRow } from '../schema/rows.ts';
import { typeIs } from '../schema/words.ts';
import { rateGroups } from './billed-calls.ts';
import { type Column, everywhere, isSeen, keyColumn, NO_FILTER, whereFilter } from './cost-sql.ts';
import { separateSimulated } from './simulated-part.ts';
import { eventSlices, type RateGroup, type Read, sumParts } from './slices.ts';

/** Decisions of a slice: each takes about 15 µs. */
const SLICE_ROWS = 2000;
/** Groups of calls that are priced before other work may run. */
const GROUPS_AT_ONCE = 2000;

const DECIDED = `SELECT s.session_id, e.turn_id, e.payload_json FROM event_rows e
    JOIN event_sessions s ON s.session_key = e.session_key
  WHERE e.${typeIs('route.decided')} AND e.timestamp_ms >= ? AND e.timestamp_ms < ?`;
/** Calls of the gateway belong to no turn: the decision about a model of their session is theirs. */
const LINK = everywhere("coalesce(turn_id, '')");
const SESSION = everywhere('session_id');
const MODEL = everywhere('model');
const KEYS = {
  day: everywhere(`ts_ms / ${DAY_MS}`),
  model: MODEL,
  workspace: everywhere('workspace_hash'),
} as const;

interface Sums {
  actual: bigint;
  low: bigint;
  high: bigint;
}

/** Decisions with one outcome. */
interface Change extends Sums {
  readonly from_model: string;
  readonly to_model: string;
  readonly rule_name: string | null;
  /** Row of the price table. */
  readonly price_row: string;
  decisions: number;
}

interface Choice {
  readonly model: string;
  readonly effort: Effort | null;
}
type Decided = PayloadOf<'route.decided'>;

/** Nothing is stored. Calls whose decision lies before the window keep their stamped price. */
export async function whatIf(read: Read, query: WhatIfQuery, pricer: CallPricer): Promise<WhatIfFound> {
  const { catalog, window, group_by } = query;
  const registry = createModelRegistry(
    { models: catalog.models, adapters: catalog.adapters as ReadonlyMap<string, AdapterConfig> },
    catalog.usable,
  );
  const { reader } = query;
  const named = { workspace_hash: query.workspace_hash, ...(reader !== undefined && { reader }) };
  const filter: CallFilter = { ...NO_FILTER, ...named };
  const { query: counted, simulated } = await separateSimulated(read, { window, filter });
  const decided = await repeatDecisions(read, query, {
    registry,
    pricer,
    withoutSimulated: counted.filter.without_simulated === true,
  });
  const total: Sums = { actual: 0n, low: 0n, high: 0n };
  const groups = new Map<string, Sums>();
  let unpriced = 0;
  let unlinked = 0;
  let seen = 0;
  const calls = rateGroups(read, {
    window,
    columns: [LINK, SESSION, MODEL, ...(group_by === null ? [] : [chooseKey(group_by, reader)])],
    where: whereFilter(counted.filter),
    pricer,
    byDay: false,
  });
  for await (const group of calls) {
    const [turn, session, model, key] = group.values;
    const link = turn === '' ? `${session} ${model}` : String(turn);
    const change = decided.changes.get(link) ?? null;
    if (!decided.links.has(link)) unlinked += Number(group.sums.calls);
    const cost = change && priceGroup(group, change.price_row);
    const actual = group.sums.cost_pusd;
    if (change !== null && cost === null) unpriced += Number(group.sums.calls);
    const { low, high } = cost ?? { low: actual, high: actual };
    const sums = [total, ...(change === null ? [] : [change])];
    if (group_by !== null) sums.push(findGroup(groups, nameKey(group_by, key!)));
    for (const sum of sums) addCost(sum, { actual, low, high });
    seen += 1;
    if (seen % GROUPS_AT_ONCE === 0) await setImmediate();
  }
  const changed = decided.rows.sort(compareChanges);
  return {
    actual_usd: fromPusd(total.actual),
    hypothetical_usd: { low: fromPusd(total.low), high: fromPusd(total.high) },
    basis: describeBasis(changed, registry),
    decisions: decided.counts,
    changed: changed.map(({ from_model, to_model, rule_name, decisions, ...sums }) => ({
      from_model,
      to_model,
      rule_name,
      decisions,
      ...formatSums(sums),
    })),
    groups: [...groups].sort(([a], [b]) => compareText(a, b)).map(([key, sums]) => ({ key, ...formatSums(sums) })),
    simulated,
    unpriced_calls: unpriced,
    unlinked_calls: unlinked,
  };
}

interface RepeatedDecisions {
  readonly counts: WhatIf['decisions'];
  readonly rows: Change[];
  /** By turn, or by session and model. */
  readonly changes: ReadonlyMap<string, Change>;
  /** Of all decisions. */
  readonly links: ReadonlySet<string>;
}

interface Catalog {
  readonly registry: ModelRegistry;
  readonly pricer: CallPricer;
  readonly withoutSimulated: boolean;
}

async function repeatDecisions(read: Read, query: WhatIfQuery, catalog: Catalog): Promise<RepeatedDecisions> {
  const { registry } = catalog;
  const world = createWorld(query, catalog);
  const counts = { same: 0, changed: 0, undecided: 0 };
  const rows = new Map<string, Change>();
  const changes = new Map<string, Change>();
  const links = new Set<string>();
  const { workspace_hash, reader } = query;
  const own = workspace_hash === null ? [] : [workspace_hash];
  const sql = `${DECIDED}${workspace_hash === null ? '' : inWorkspace(reader)} ORDER BY e.timestamp_ms, e.id`;
  for await (const { from, to } of eventSlices(read, 'route.decided', query.window, SLICE_ROWS)) {
    for (const row of await read<Pick<EventRow, 'session_id' | 'turn_id' | 'payload_json'>>(sql, from, to, ...own)) {
      const stored = unpackPayload('route.decided', JSON.parse(row.payload_json), row) as Decided;
      const { chosen_model, chosen_effort } = stored;
      if (stored.refused !== null || (catalog.withoutSimulated && isSimulated(chosen_model))) continue;
      const link = row.turn_id ?? `${row.session_id} ${chosen_model}`;
      links.add(link);
      const again = decideAgain(stored, world);
      // A later decision about the same calls of a gateway's session replaces an earlier one.
      if (row.turn_id === null) changes.delete(link);
      if (again === null) {
        counts.undecided += 1;
        continue;
      }
      const choice = replaceModel(query, again);
      if (choice.model === chosen_model && choice.effort === chosen_effort) {
        counts.same += 1;
        continue;
      }
      counts.changed += 1;
      const names = [nameReference(chosen_model, chosen_effort), nameReference(choice.model, choice.effort)];
      const key = JSON.stringify([...names, again.rule_name]);
      const change = rows.get(key) ?? createChange(names as [string, string], again.rule_name, choice.model, registry);
      rows.set(key, change);
      change.decisions += 1;
      changes.set(link, change);
    }
  }
  return { counts, rows: [...rows.values()], changes, links };
}

/** Where all sessions of the workspace are private ones of others, the reader finds no decision either. */
function inWorkspace(reader: WhatIfQuery['reader']): string {
  const seen = reader === undefined ? '' : ` AND ${isSeen('workspace_hash', reader)}`;
  return ` AND s.session_id IN (SELECT id FROM sessions WHERE workspace_hash = ?${seen})`;
}

function createWorld(query: WhatIfQuery, { registry, pricer }: Catalog): RepeatWorld {
  const { catalog, tiers } = query;
  return {
    registry,
    alternative: { policies: readPolicies(query, registry), tiers },
    gatewayAdapters: catalog.gateway,
    allowCostlierFallback: catalog.allow_costlier_fallback,
    isPriced: (id) => pricer.ratesFor(findPriceRow(registry, id), 0) !== null,
    rateSum(id) {
      const rates = pricer.ratesFor(findPriceRow(registry, id), 0);
      return rates && rates.input + rates.output;
    },
  };
}

/** The file was checked before the question was asked. */
function readPolicies({ routing, catalog }: WhatIfQuery, registry: ModelRegistry): RoutingPolicies | null {
  if (routing === null) return null;
  const parsed = parsePolicyFile(routing.text, routing.kind, registry);
  if (!parsed.ok) throw new Error(`the routing file is not valid: ${parsed.error.join('; ')}`);
  const layers = { workspace: null, global: null, [routing.kind]: parsed.value };
  return mergePolicies({ ...layers, configDefault: catalog.default_model }, registry);
}

/** What the table of models puts in the place of a choice: its own line for the effort comes before the one for any. */
function replaceModel({ models }: WhatIfQuery, { model, effort }: Choice): Choice {
  const line =
    models.find(({ from }) => from.model === model && from.effort !== null && from.effort === effort) ??
    models.find(({ from }) => from.model === model && from.effort === null);
  return line?.to ?? { model, effort };
}

function createChange(
  [from_model, to_model]: readonly [string, string],
  rule_name: string | null,
  model: string,
  registry: ModelRegistry,
): Change {
  const price_row = findPriceRow(registry, model);
  return { from_model, to_model, rule_name, price_row, decisions: 0, actual: 0n, low: 0n, high: 0n };
}

function findPriceRow(registry: ModelRegistry, id: string): string {
  return registry.get(id)?.pricing_id ?? id;
}

/** Null where the other model lacks a rate, a fee or a multiplier of the calls. */
function priceGroup(group: RateGroup, row: string): Omit<Sums, 'actual'> | null {
  const low = group.cost(row);
  const high = group.cost(row, 'missed');
  if (low === null || high === null) return null;
  return { low: sumParts(low), high: sumParts(high) };
}

function addCost(sums: Sums, { actual, low, high }: Sums): void {
  sums.actual += actual;
  sums.low += low;
  sums.high += high;
}

function findGroup(groups: Map<string, Sums>, key: string): Sums {
  const sums = groups.get(key) ?? { actual: 0n, low: 0n, high: 0n };
  groups.set(key, sums);
  return sums;
}

function chooseKey(kind: keyof typeof KEYS, reader: WhatIfQuery['reader']): Column {
  if (kind === 'workspace') return keyColumn('workspace_hash', false, reader);
  return KEYS[kind];
}

function nameKey(kind: keyof typeof KEYS, value: bigint | string): string {
  if (kind === 'day') return new Date(Number(value) * DAY_MS).toISOString().slice(0, 10);
  return String(value);
}

function formatSums({ actual, low, high }: Sums) {
  return { actual_usd: fromPusd(actual), low_usd: fromPusd(low), high_usd: fromPusd(high) };
}

/** The most expensive first. */
function compareChanges(a: Change, b: Change): number {
  if (a.actual !== b.actual) return a.actual > b.actual ? -1 : 1;
  return compareText(`${a.from_model} ${a.to_model} ${a.rule_name}`, `${b.from_model} ${b.to_model} ${b.rule_name}`);
}

/** Token counts are those of the model that answered; where the other one counts by another tokenizer, this names it. */
function describeBasis(changed: readonly Change[], registry: ModelRegistry): string {
  const tokenizer = (reference: string) => {
    const id = registry.findReference(reference)?.id ?? reference;
    return registry.get(id)?.tokenizer ?? null;
  };
  const others = changed
    .filter(({ from_model, to_model }) => tokenizer(from_model) !== tokenizer(to_model))
    .map(({ from_model, to_model }) => `${from_model} -> ${to_model}`);
  if (others.length === 0) return 'recorded tokens';
  return `recorded tokens; another tokenizer counts them otherwise: ${[...new Set(others)].join(', ')}`;
}
