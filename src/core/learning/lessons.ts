// Turns events into lessons: rows and events that are written together (12 §12.3, §12.5).
import type { Clock } from '#protocol/clock.ts';
import { type AnyEvent, draft, type EventDraft, type PayloadOf } from '#protocol/event.ts';
import type { IdGenerator, TurnId } from '#protocol/ids.ts';
import { CHECK_RUBRIC, type PatternRecord, USER_RUBRIC, type Verdict } from '#protocol/learned-pattern.ts';
import { joinText } from '#protocol/message.ts';
import { fromPusd, type Pusd, toPusd } from '#protocol/money.ts';
import { isSimulated } from '#protocol/text/simulated.ts';
import { signFingerprint } from '../policy/learning/fingerprint.ts';
import { JUDGED_TYPES, judgeSession, judgeTurn, type TurnVerdict } from '../policy/learning/rubrics.ts';
import type { Write } from '../ports/journal-writer.ts';
import type { LearnedTurn } from '../ports/learned-turns.ts';
import type { Store } from '../ports/store-reader.ts';
import type { WorkspacePatterns } from './pattern-memory.ts';

export interface LearnDeps {
  readonly store: Store;
  readonly ids: IdGenerator;
  readonly clock: Clock;
  /** `eval.disabled`: no verdicts. */
  readonly evalDisabled: boolean;
  /** Of one workspace. */
  readonly maxOutcomes: number;
}

export interface Lesson {
  readonly writes: readonly Write[];
  readonly emit: readonly EventDraft[];
}

/** Facts of a turn, collected while it ran. */
export interface ObservedTurn {
  /** Events of `JUDGED_TYPES`. */
  readonly events: readonly AnyEvent[];
  /** The last answer of a model. */
  readonly answer: { readonly message_id: string; readonly text: string } | null;
}

/** An event that teaches. */
export interface Occasion {
  readonly event: AnyEvent;
  /** Facts of an ended turn, where all of it was seen; null = they are read back from the store. */
  readonly seen: ObservedTurn | null;
}

export const LEARNED_TYPES = ['turn.completed', 'session.ended', 'eval.completed'] as const;
/** Verdicts below it do not enter means. */
const MIN_EVAL_CONFIDENCE = 0.5;
const PAGE = 500;

type PatternsOf = (workspacePath: string) => Promise<WorkspacePatterns>;

/** Lessons of several events, which must not build on each other. An event that was learned before or whose records were purged yields nothing. */
export async function deriveLessons(
  deps: LearnDeps,
  occasions: readonly Occasion[],
  patternsOf: PatternsOf,
): Promise<readonly Lesson[]> {
  const ids = occasions.flatMap(({ event: { turn_id } }) => turn_id ?? []);
  const turns = ids.length === 0 ? null : await deps.store.patterns.turns(ids);
  const lessons: (Lesson | null)[] = [];
  for (const { event, seen } of occasions) {
    const { turn_id } = event;
    const turn = turn_id === null ? undefined : turns?.get(turn_id);
    if (event.type === 'session.ended') lessons.push(await judgeEndedSession(deps, event));
    else if (turn !== undefined && turn_id !== null) {
      const learned = { event, seen, turn, turn_id };
      lessons.push(await (event.type === 'turn.completed' ? learnTurn : learnVerdict)(deps, learned, patternsOf));
    }
  }
  return lessons.filter((lesson) => lesson !== null);
}

interface Learned extends Occasion {
  readonly turn: LearnedTurn;
  readonly turn_id: TurnId;
}

/** Recorded, judged and scored in one step. */
async function learnTurn(deps: LearnDeps, learned: Learned, patternsOf: PatternsOf): Promise<Lesson | null> {
  const { event, seen, turn, turn_id } = learned;
  const events = seen?.events ?? (await deps.store.events.listOfTurn(turn_id, [...JUDGED_TYPES, 'eval.completed']));
  const judged = deps.evalDisabled || events.some((one) => one.type === 'eval.completed' && !isUserVerdict(one));
  const completed = event.payload as PayloadOf<'turn.completed'>;
  const verdict = judged ? null : judgeTurn(completed, events, await readLastText(deps, events, seen));
  const emit: EventDraft[] = [];
  if (verdict !== null) emit.push(draftEvaluation(deps, event, { subject_kind: 'turn', subject_id: turn_id, verdict }));
  const { fingerprint, chosen_model } = turn;
  // A script teaches nothing about models.
  if (fingerprint === null || chosen_model === null || isSimulated(chosen_model) || turn.recorded !== null) {
    if (emit.length === 0) return null;
    return { writes: [], emit };
  }

  const patterns = await patternsOf(turn.workspace_path);
  const shape = signFingerprint(fingerprint);
  const known = patterns.findId(shape.structural_sig);
  const record: PatternRecord = {
    turn_id,
    workspace_path: turn.workspace_path,
    fingerprint_id: known ?? deps.ids.next(),
    ...shape,
    primary_model: chosen_model,
    is_worker: turn.is_worker,
    cost_pusd: toPusd(completed.total_cost_usd),
    has_cost: !wasCutShort(completed, events),
    latency_ms: completed.wall_time_seconds * 1000,
    pricing_version: readPricingVersion(events),
    score: verdict !== null && verdict.confidence >= MIN_EVAL_CONFIDENCE ? verdict.score : null,
    at: deps.clock.now(),
  };
  const place = { sig: shape.structural_sig, model: chosen_model, is_worker: turn.is_worker };
  const before = patterns.findOutcome(place)?.sample_size ?? 0;
  patterns.addRecord(record, fingerprint);
  emit.push(
    draftRecorded(
      event,
      { ...record, model: chosen_model },
      { before, after: before + 1, was_new: known === null, ...record },
    ),
  );
  const writes: Write[] = [{ kind: 'pattern.record', record }];
  for (const gone of patterns.dropBeyond(deps.maxOutcomes)) writes.push({ kind: 'pattern.forget', ...gone });
  return { writes, emit };
}

/** A verdict that arrived by itself, perhaps long after the turn; an explicit score replaces the automatic one. */
async function learnVerdict(
  { store, clock }: LearnDeps,
  { event, turn, turn_id }: Learned,
  patternsOf: PatternsOf,
): Promise<Lesson | null> {
  const { subject_kind, score, confidence } = event.payload as PayloadOf<'eval.completed'>;
  const { recorded: place, workspace_path, is_worker } = turn;
  if (subject_kind !== 'turn' || confidence < MIN_EVAL_CONFIDENCE) return null;
  if (place === null) return null;
  const rank = rankVerdict(event);
  const replaces = rank > 0;
  if (place.score !== null && !replaces) return null;
  // A person's score stays above that of a check.
  if (rank === 1 && place.is_verified) return null;
  if (place.score === score && place.is_verified) return null;
  const patterns = await patternsOf(workspace_path);
  const at = clock.now();
  const { structural_sig: sig, primary_model: model, fingerprint_id, pricing_version } = place;
  const outcome = { sig, model, is_worker };
  const verified = { is_verified: replaces, replaced: place.score, replaces_verified: place.is_verified };
  patterns.addScore(outcome, { score, at, ...verified });
  const n = patterns.findOutcome(outcome)?.sample_size ?? 0;
  const { cost_pusd } = await store.turns.totals(turn_id);
  const counted = { before: n, after: n, was_new: false, score, cost_pusd };
  return {
    writes: [{ kind: 'pattern.score', turn_id, score, replaces, is_verified: replaces, at }],
    emit: [draftRecorded(event, { model, fingerprint_id, pricing_version }, counted)],
  };
}

async function judgeEndedSession(deps: LearnDeps, event: AnyEvent): Promise<Lesson | null> {
  const { store } = deps;
  if (deps.evalDisabled) return null;
  // One verdict per turn: the newest of the highest rank.
  const turns = new Map<string, TurnVerdict & { readonly rank: number }>();
  const delegations = { total: 0, failed: 0 };
  const types = ['eval.completed', 'delegate.completed', 'delegate.failed'];
  const query = { session_id: event.session_id, include_workers: false, types, until: null, limit: PAGE };
  for (let after: string | null = null, more = true; more; ) {
    const page = await store.events.list({ ...query, after });
    for (const one of page.rows) {
      const { type, payload } = one;
      if (type === 'eval.completed') {
        const { subject_kind, subject_id, eval_id, score } = payload as PayloadOf<'eval.completed'>;
        if (subject_kind === 'session') return null;
        const rank = rankVerdict(one);
        if (rank >= (turns.get(subject_id)?.rank ?? 0)) turns.set(subject_id, { eval_id, score, rank });
        continue;
      }
      // No model or tool is at fault.
      if (type === 'delegate.failed' && payload.failure_mode === 'cancelled_by_user') continue;
      delegations.total += 1;
      if (type === 'delegate.failed') delegations.failed += 1;
    }
    after = page.next;
    more = after !== null;
  }
  // Purged meanwhile.
  if ((await store.sessions.record(event.session_id)) === null) return null;
  const verdict = judgeSession({
    disposition: (event.payload as PayloadOf<'session.ended'>).disposition,
    turns: [...turns.values()],
    delegations_total: delegations.total,
    delegations_failed: delegations.failed,
  });
  const evaluation = draftEvaluation(deps, event, { subject_kind: 'session', subject_id: event.session_id, verdict });
  return { writes: [], emit: [evaluation] };
}

/** Such a turn's cost is not what its work costs (12 §12.3). */
function wasCutShort({ stop_reason, concluded }: PayloadOf<'turn.completed'>, events: readonly AnyEvent[]): boolean {
  if (stop_reason === 'budget_exceeded' || concluded) return true;
  return events.some(({ type, payload }) => type === 'tool.failed' && payload.error_class === 'user_denied');
}

function isUserVerdict({ payload }: AnyEvent): boolean {
  return payload.rubric_id === USER_RUBRIC;
}

/** 2 for a person's score, 1 for that of a check, 0 for a heuristic one. Higher ranks replace lower ones. */
function rankVerdict(event: AnyEvent): number {
  if (isUserVerdict(event)) return 2;
  return event.payload.rubric_id === CHECK_RUBRIC ? 1 : 0;
}

function draftRecorded(
  { id, session_id, turn_id }: AnyEvent,
  about: { readonly fingerprint_id: string; readonly model: string; readonly pricing_version: string },
  counted: {
    readonly before: number;
    readonly after: number;
    readonly was_new: boolean;
    readonly score: number | null;
    readonly cost_pusd: Pusd;
  },
): EventDraft {
  return draft({
    type: 'pattern.recorded',
    session_id,
    turn_id,
    parent: id,
    payload: {
      fingerprint_id: about.fingerprint_id,
      primary_model: about.model,
      sample_size_before: counted.before,
      sample_size_after: counted.after,
      was_new_fingerprint: counted.was_new,
      success_score: counted.score,
      cost_usd_at_record: fromPusd(counted.cost_pusd),
      pricing_version: about.pricing_version,
    },
  });
}

function draftEvaluation(
  { ids }: LearnDeps,
  { session_id, turn_id, id }: AnyEvent,
  {
    verdict,
    ...subject
  }: Pick<PayloadOf<'eval.completed'>, 'subject_kind' | 'subject_id'> & { readonly verdict: Verdict },
): EventDraft {
  const payload = { eval_id: ids.next(), ...subject, ...verdict, signals: { ...verdict.signals } };
  return draft({ type: 'eval.completed', session_id, turn_id, parent: id, payload });
}

/** The beginning of the answer of the turn's last model call. */
async function readLastText(
  { store }: LearnDeps,
  events: readonly AnyEvent[],
  seen: ObservedTurn | null,
): Promise<string> {
  const answers = listCalls(events).filter((call) => call.purpose === 'turn' && call.message_id !== null);
  const id = answers.at(-1)?.message_id ?? null;
  if (seen?.answer?.message_id === id) return seen?.answer?.text ?? '';
  const message = id && (await store.messages.get(id));
  if (!message) return '';
  return joinText(message.content);
}

function readPricingVersion(events: readonly AnyEvent[]): string {
  return listCalls(events).at(-1)?.pricing_version ?? '';
}

function listCalls(events: readonly AnyEvent[]): PayloadOf<'llm.call_completed'>[] {
  const calls = events.filter(({ type }) => type === 'llm.call_completed');
  return calls.map(({ payload }) => payload as PayloadOf<'llm.call_completed'>);
}
