// The patterns of the workspaces used last. Reads and changes of one workspace take turns, so that neither misses the other.
import type { Clock } from '#protocol/clock.ts';
import type { PatternOutcome, PatternRecord, StoredPattern } from '#protocol/learned-pattern.ts';
import type { Pusd } from '#protocol/money.ts';
import { type Names, type Neighbour, type Shape, toShape } from '../policy/learning/recommend-model.ts';
import type { PatternReader } from '../ports/learned-turns.ts';

// The learned patterns of one workspace, in memory: read once, then updated by the loop (12 §12.4).

type MutableOutcome = { -readonly [K in keyof PatternOutcome]: PatternOutcome[K] };
interface Pattern extends Neighbour {
  readonly sig: string;
  readonly outcomes: Map<string, MutableOutcome>;
}

/** Of one outcome. */
interface OutcomePlace {
  readonly sig: string;
  readonly model: string;
  readonly is_worker: boolean;
}

interface NewScore {
  readonly score: number;
  /** Whether a check or a person gave it. */
  readonly is_verified: boolean;
  /** The turn's previous contribution; null = it had none. */
  readonly replaced: number | null;
  readonly replaces_verified: boolean;
  /** Unix milliseconds. */
  readonly at: number;
}

export class WorkspacePatterns {
  readonly #names: Names = new Map();
  readonly #patterns = new Map<string, Pattern>();
  /** Least recently updated first. */
  readonly #recency = new Map<string, { readonly pattern: Pattern; readonly outcome: MutableOutcome }>();

  /** @param stored every pattern of the workspace */
  constructor(stored: readonly StoredPattern[]) {
    const all = stored.flatMap(({ fingerprint_id, structural_sig, fingerprint, outcomes }) => {
      const pattern = this.#add(structural_sig, fingerprint_id, toShape(fingerprint, this.#names, true));
      return outcomes.map((outcome) => ({ pattern, outcome: { ...outcome } }));
    });
    all.sort((a, b) => a.outcome.last_updated_at - b.outcome.last_updated_at);
    for (const { pattern, outcome } of all) this.#touch(pattern, outcome);
  }

  /** Number of outcomes. */
  get size(): number {
    return this.#recency.size;
  }

  listPatterns(): Iterable<Neighbour> {
    return this.#patterns.values();
  }

  /** A shape for a lookup; unused names are not registered. */
  buildQueryShape(fingerprint: StoredPattern['fingerprint']): Shape {
    return toShape(fingerprint, this.#names, false);
  }

  findId(sig: string): string | null {
    return this.#patterns.get(sig)?.fingerprint_id ?? null;
  }

  findOutcome(place: OutcomePlace): PatternOutcome | null {
    return this.#patterns.get(place.sig)?.outcomes.get(outcomeKey(place)) ?? null;
  }

  addRecord(record: PatternRecord, fingerprint: StoredPattern['fingerprint']): void {
    const sig = record.structural_sig;
    const pattern =
      this.#patterns.get(sig) ?? this.#add(sig, record.fingerprint_id, toShape(fingerprint, this.#names, true));
    const place = { model: record.primary_model, is_worker: record.is_worker };
    const outcome = pattern.outcomes.get(outcomeKey(place)) ?? emptyOutcome(place);
    outcome.sample_size += 1;
    if (record.has_cost) {
      outcome.cost_count += 1;
      outcome.sum_cost_pusd = (outcome.sum_cost_pusd + record.cost_pusd) as Pusd;
    }
    outcome.sum_latency_ms += record.latency_ms;
    outcome.last_updated_at = record.at;
    if (record.score !== null) addScore(outcome, record.score, null);
    this.#touch(pattern, outcome);
  }

  addScore(place: OutcomePlace, { score, is_verified, replaced, replaces_verified, at }: NewScore): void {
    const pattern = this.#patterns.get(place.sig);
    const outcome = pattern?.outcomes.get(outcomeKey(place));
    if (!pattern || !outcome) return;
    addScore(outcome, score, replaced);
    if (is_verified) addVerified(outcome, score, replaces_verified ? replaced : null);
    outcome.last_updated_at = at;
    this.#touch(pattern, outcome);
  }

  /** Removes the outcomes beyond `limit`, the least recently updated first. */
  dropBeyond(limit: number): Pick<PatternRecord, 'fingerprint_id' | 'primary_model' | 'is_worker'>[] {
    const gone = [];
    for (const [key, { pattern, outcome }] of this.#recency) {
      if (this.#recency.size <= limit) break;
      this.#recency.delete(key);
      pattern.outcomes.delete(outcomeKey(outcome));
      if (pattern.outcomes.size === 0) this.#patterns.delete(pattern.sig);
      const { model: primary_model, is_worker } = outcome;
      gone.push({ fingerprint_id: pattern.fingerprint_id, primary_model, is_worker });
    }
    return gone;
  }

  #add(sig: string, fingerprint_id: string, shape: Shape): Pattern {
    const pattern = { sig, fingerprint_id, shape, outcomes: new Map() };
    this.#patterns.set(sig, pattern);
    return pattern;
  }

  #touch(pattern: Pattern, outcome: MutableOutcome): void {
    const own = outcomeKey(outcome);
    const key = `${pattern.sig} ${own}`;
    pattern.outcomes.set(own, outcome);
    this.#recency.delete(key);
    this.#recency.set(key, { pattern, outcome });
  }
}

function outcomeKey({ model, is_worker }: Pick<PatternOutcome, 'model' | 'is_worker'>): string {
  return `${is_worker ? 'worker' : 'top'} ${model}`;
}

/** @param replaced null = the turn had none */
function addScore(outcome: MutableOutcome, score: number, replaced: number | null): void {
  if (replaced === null) outcome.success_score_count += 1;
  const { success_score_mean: mean, success_score_count: count } = outcome;
  outcome.success_score_mean = clampShare(mean + (score - (replaced ?? mean)) / count);
}

/** @param replaced null = the turn had no verified score */
function addVerified(outcome: MutableOutcome, score: number, replaced: number | null): void {
  if (replaced === null) outcome.verified_count += 1;
  const { verified_mean: mean, verified_count: count } = outcome;
  outcome.verified_mean = clampShare(mean + (score - (replaced ?? mean)) / count);
}

function clampShare(share: number): number {
  return Math.max(0, Math.min(1, share));
}

function emptyOutcome({ model, is_worker }: Pick<PatternOutcome, 'model' | 'is_worker'>): MutableOutcome {
  return {
    model,
    is_worker,
    sample_size: 0,
    success_score_mean: 0,
    success_score_count: 0,
    verified_mean: 0,
    verified_count: 0,
    sum_cost_pusd: 0n as Pusd,
    cost_count: 0,
    sum_latency_ms: 0,
    last_updated_at: 0,
  };
}

/** A full workspace takes some megabytes. */
const MAX_WORKSPACES = 20;
/** Rows read at once: a full workspace is read in parts, so that the event loop is not blocked for long. */
const SLICE = 500;

export interface PatternMemory {
  /** The workspace's patterns in memory, null when they have to be read. */
  peek(workspacePath: string): WorkspacePatterns | null;
  /** Reads the patterns where they are not in memory, when no change runs. Rejects when the store fails; the next call tries again. */
  load(workspacePath: string): Promise<WorkspacePatterns>;
  /** Runs `change` while nothing else reads or changes the patterns. `change` gets the patterns by its parameter. */
  runExclusively<T>(change: (of: PatternMemory['load']) => Promise<T>): Promise<T>;
  forget(workspacePath: string): void;
}

/** @param age after which patterns are read again; null = no other node changes them */
export function createPatternMemory(
  store: { readonly patterns: PatternReader },
  age: { readonly clock: Clock; readonly ms: number } | null = null,
): PatternMemory {
  const kept = new Map<string, WorkspacePatterns>();
  const readAt = new Map<string, number>();
  let last: Promise<unknown> = Promise.resolve();

  function peekPatterns(workspacePath: string): WorkspacePatterns | null {
    const patterns = kept.get(workspacePath);
    kept.delete(workspacePath);
    if (patterns === undefined || isOld(workspacePath)) return null;
    kept.set(workspacePath, patterns);
    return patterns;
  }

  function isOld(workspacePath: string): boolean {
    return age !== null && age.clock.monotonic() - (readAt.get(workspacePath) ?? 0) > age.ms;
  }

  async function readPatterns(workspacePath: string): Promise<WorkspacePatterns> {
    const known = peekPatterns(workspacePath);
    if (known !== null) return known;
    if (age !== null) readAt.set(workspacePath, age.clock.monotonic());
    const rows: StoredPattern[] = [];
    for (let after = ''; ; ) {
      const slice = await store.patterns.bySignature(workspacePath, after, SLICE);
      rows.push(...slice);
      if (slice.length < SLICE) break;
      after = slice.at(-1)!.structural_sig;
      await new Promise((resolve) => setImmediate(resolve));
    }
    const patterns = new WorkspacePatterns(rows);
    kept.set(workspacePath, patterns);
    for (const [path] of kept) {
      if (kept.size <= MAX_WORKSPACES) break;
      kept.delete(path);
      readAt.delete(path);
    }
    return patterns;
  }

  function runExclusively<T>(change: (of: PatternMemory['load']) => Promise<T>): Promise<T> {
    const mine = last.then(() => change(readPatterns));
    last = mine.catch(() => {});
    return mine;
  }

  return {
    peek: peekPatterns,
    load: (workspacePath) => runExclusively((of) => of(workspacePath)),
    runExclusively,
    forget: (workspacePath) => {
      kept.delete(workspacePath);
    },
  };
}
