// Answers requests of a run with those of its case, session by session, and finds the first request that differs (21 §3).
import type { CaseRequest } from '#core/policy/session/case-request.ts';
import { type Difference, describeCaseRequest, findDifference } from '#core/policy/session/case-request.ts';
import type { CaseOutcome } from '#models/recorded/case-adapter.ts';
import { bodyKey, canonicalBody, listRunIds } from '#models/recorded/recording.ts';
import type { CanonicalRequest } from '#protocol/model-call.ts';
import type { CaseCall, CaseHead, CaseMessage } from '#protocol/what-if/case.ts';
import type { CaseCallFile } from './case-files.ts';

/** A call of the case with its whole request. */
interface Known {
  readonly file: CaseCallFile;
  readonly request: CaseRequest;
}

export interface RequestDifference extends Difference {
  /** `call 3 of the planner` */
  readonly where: string;
}

export interface CaseAnswers {
  take(request: CanonicalRequest): CaseOutcome | null;
  /** Requests that differ from the case, in the order in which they came. */
  readonly differences: readonly RequestDifference[];
  /** Calls of the case that no request took. */
  countLeft(): number;
}

/** @param places folders of this run */
export function createCaseAnswers(calls: readonly CaseCallFile[], places: readonly Place[]): CaseAnswers {
  const sessions = groupCalls(calls);
  /** Session of the case by that of the run, and how many of its calls are used. */
  const taken = new Map<string, { readonly id: string; used: number }>();
  const differences: RequestDifference[] = [];

  function findSession({ caller }: CanonicalRequest, request: CaseRequest) {
    const known = taken.get(caller.session_id);
    if (known !== undefined) return known;
    const used = new Set([...taken.values()].map(({ id }) => id));
    const parent = caller.parent_session_id === null ? null : (taken.get(caller.parent_session_id)?.id ?? null);
    const free = [...sessions].filter(([id, [first]]) => !used.has(id) && first!.file.parent_session_id === parent);
    const key = bodyKey(request, []);
    const task = request.head.system_prompt_volatile;
    const found =
      free.find(([, [first]]) => first!.file.key === key) ??
      free.find(([, [first]]) => first!.request.head.system_prompt_volatile === task) ??
      free[0];
    if (found === undefined) return null;
    const session = { id: found[0], used: 0 };
    taken.set(caller.session_id, session);
    return session;
  }

  return {
    differences,
    countLeft: () => {
      const used = [...taken.values()].reduce((sum, session) => sum + session.used, 0);
      return calls.length - used;
    },
    take(sent) {
      const raw = describeCaseRequest(sent);
      const request = hidePlaces(raw, places);
      const session = findSession(sent, request);
      const call = session === null ? undefined : sessions.get(session.id)?.[session.used];
      const who = sent.caller.is_worker ? 'a worker' : 'the planner';
      if (session === null || call === undefined) {
        differences.push({ where: `a call of ${who}`, path: '', diff: '+ a model call that the case does not have' });
        return null;
      }
      session.used += 1;
      if (call.file.key !== bodyKey(request, [])) {
        const found = findDifference(toComparable(call.request), toComparable(request));
        if (found !== null) differences.push({ where: `call ${session.used} of ${who}`, ...found });
      }
      return adaptOutcome(call, request, places);
    },
  };
}

function groupCalls(calls: readonly CaseCallFile[]): ReadonlyMap<string, readonly Known[]> {
  const builders = new Map<string, ReturnType<typeof createRequestBuilder>>();
  const sessions = new Map<string, Known[]>();
  for (const file of calls) {
    const { session_id: id } = file;
    const build = builders.get(id) ?? createRequestBuilder();
    builders.set(id, build);
    sessions.set(id, [...(sessions.get(id) ?? []), { file, request: build(file) }]);
  }
  return sessions;
}

/** The recorded outcome with the ids and folders of this run: both requests name them in the same order. */
function adaptOutcome({ file, request }: Known, now: CaseRequest, places: readonly Place[]): CaseOutcome {
  const fresh = listRunIds(now);
  const ids = new Map(listRunIds(request).map((id, at) => [id, fresh[at] ?? id]));
  const { answer, error } = file;
  const replaceIds = (text: string) => text.replace(/(?:tu_|sess_)[0-9A-HJKMNP-TV-Z]{26}/g, (id) => ids.get(id) ?? id);
  return showPlaces(mapTexts({ answer, error }, replaceIds) as CaseOutcome, places);
}

/** A folder, and its name in a case. */
export type Place = readonly [folder: string, token: string];

export const WORKSPACE = '<workspace>';
export const DATA = '<data>';

/** Replaces each folder by its token, the longest first. */
export function hidePlaces<T>(value: T, places: readonly Place[]): T {
  const longest = [...places].sort(([a], [b]) => b.length - a.length);
  return mapTexts(value, (text) => longest.reduce((out, [folder, token]) => out.replaceAll(folder, token), text)) as T;
}

/** Replaces each token by its folder. */
export function showPlaces<T>(value: T, places: readonly Place[]): T {
  return mapTexts(value, (text) => places.reduce((out, [folder, token]) => out.replaceAll(token, folder), text)) as T;
}

export function mapTexts(value: unknown, change: (text: string) => string): unknown {
  if (typeof value === 'string') return change(value);
  if (Array.isArray(value)) return value.map((one) => mapTexts(one, change));
  if (typeof value !== 'object' || value === null) return value;
  return Object.fromEntries(Object.entries(value).map(([key, one]) => [key, mapTexts(one, change)]));
}

/** Builds the whole requests of one session from its calls, which come in their order. */
export function createRequestBuilder(): (call: CaseCall) => CaseRequest {
  let head: CaseHead | null = null;
  let messages: readonly CaseMessage[] = [];
  return (call) => {
    head = call.head ?? head;
    messages = [...messages.slice(0, call.same_messages), ...call.messages];
    if (head === null) throw new RangeError('the first call of a session has no head');
    return { head, messages };
  };
}

/** The request as it is compared: ids are counted, and what differs by nature is left out. */
export function toComparable(request: CaseRequest): unknown {
  return JSON.parse(canonicalBody(request, []));
}
