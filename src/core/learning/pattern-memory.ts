// The patterns of the workspaces used last. Reads and changes of one workspace take turns, so that neither misses the other.
import type { Clock } from '#protocol/clock.ts';
import type { PatternOutcome, PatternRecord, StoredPattern } from '#protocol/learned-pattern.ts';
import { type Pusd, toPusd } from '#protocol/money.ts';
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

  findOutcome({ sig, model }: OutcomePlace): PatternOutcome | null {
    return this.#patterns.get(sig)?.outcomes.get(model) ?? null;
  }

  addRecord(record: PatternRecord, fingerprint: StoredPattern['fingerprint']): void {
    const sig = record.structural_sig;
    const pattern =
      this.#patterns.get(sig) ?? this.#add(sig, record.fingerprint_id, toShape(fingerprint, this.#names, true));
    const outcome = pattern.outcomes.get(record.primary_model) ?? emptyOutcome(record.primary_model);
    outcome.sample_size += 1;
    outcome.sum_cost_pusd = (outcome.sum_cost_pusd + toPusd(record.cost_usd)) as Pusd;
    outcome.sum_latency_ms += record.latency_ms;
    outcome.last_updated_at = record.at;
    if (record.score !== null) addToMean(outcome, record.score, null);
    this.#touch(pattern, outcome);
  }

  /** @param replaced the turn's previous contribution; null = it had none */
  addScore({ sig, model }: OutcomePlace, score: number, replaced: number | null, at: number): void {
    const pattern = this.#patterns.get(sig);
    const outcome = pattern?.outcomes.get(model);
    if (!pattern || !outcome) return;
    addToMean(outcome, score, replaced);
    outcome.last_updated_at = at;
    this.#touch(pattern, outcome);
  }

  /** Removes the outcomes beyond `limit`, the least recently updated first. */
  dropBeyond(limit: number): { readonly fingerprint_id: string; readonly primary_model: string }[] {
    const gone = [];
    for (const [key, { pattern, outcome }] of this.#recency) {
      if (this.#recency.size <= limit) break;
      this.#recency.delete(key);
      pattern.outcomes.delete(outcome.model);
      if (pattern.outcomes.size === 0) this.#patterns.delete(pattern.sig);
      gone.push({ fingerprint_id: pattern.fingerprint_id, primary_model: outcome.model });
    }
    return gone;
  }

  #add(sig: string, fingerprint_id: string, shape: Shape): Pattern {
    const pattern = { sig, fingerprint_id, shape, outcomes: new Map() };
    this.#patterns.set(sig, pattern);
    return pattern;
  }

  #touch(pattern: Pattern, outcome: MutableOutcome): void {
    const key = `${pattern.sig} ${outcome.model}`;
    pattern.outcomes.set(outcome.model, outcome);
    this.#recency.delete(key);
    this.#recency.set(key, { pattern, outcome });
  }
}

function addToMean(outcome: MutableOutcome, score: number, replaced: number | null): void {
  if (replaced === null) outcome.success_score_count += 1;
  const before = replaced ?? outcome.success_score_mean;
  const mean = outcome.success_score_mean + (score - before) / outcome.success_score_count;
  outcome.success_score_mean = Math.max(0, Math.min(1, mean));
}

function emptyOutcome(model: string): MutableOutcome {
  return {
    model,
    sample_size: 0,
    success_score_mean: 0,
    success_score_count: 0,
    sum_cost_pusd: 0n as Pusd,
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
