// Compares two sessions: what both begin with, and what each did and cost behind it (21 §4).
import type { ComparedSide, CompareReply } from '#protocol/api/fork-bodies.ts';
import { validationError } from '#protocol/errors.ts';
import type { SessionId } from '#protocol/ids.ts';
import { joinText, type StoredMessage } from '#protocol/message.ts';
import { fromPusd, sumPusd } from '#protocol/money.ts';
import type { SessionRecord } from '#protocol/session.ts';
import { summariseChanges } from '../policy/delegation/worker-outcome.ts';
import { countShared, findFirstDifference } from '../policy/session/compare-steps.ts';
import { readHistory } from './session/read-history.ts';
import { requireTopLevelSession } from './session/session-records.ts';
import type { Engine, Storage } from './state/engine.ts';

/** Throws `not_found`, `session_is_worker`, `validation_error`. */
export async function compareSessions(engine: Engine, first: string, second: string): Promise<CompareReply> {
  const [a, b] = [await requireTopLevelSession(engine, first), await requireTopLevelSession(engine, second)];
  if (a.id === b.id) throw validationError([{ path: 'with', message: 'must be another session' }]);
  const [messagesOfA, messagesOfB] = [await readHistory(engine, a), await readHistory(engine, b)];
  const count = countShared(messagesOfA, messagesOfB);
  const shared = messagesOfA.slice(0, count);
  const [ownOfA, ownOfB] = [messagesOfA.slice(count), messagesOfB.slice(count)];
  return {
    shared: { messages: count, ...(await sumShared(engine, shared)) },
    a: await describeSide(engine, a, { shared, own: ownOfA }),
    b: await describeSide(engine, b, { shared, own: ownOfB }),
    first_difference: findFirstDifference(ownOfA, ownOfB),
  };
}

/** The calls behind the shared messages, each in the session that made it. */
async function sumShared(
  { store }: Pick<Storage, 'store'>,
  shared: readonly StoredMessage[],
): Promise<Pick<CompareReply['shared'], 'calls' | 'cost_usd'>> {
  const holders = [...new Set(shared.map(({ session_id }) => session_id))];
  const sums = await Promise.all(
    holders.map(async (id) => {
      const until = await findLastCall({ store }, id, shared);
      return store.comparisons.sumCalls(id, { after: null, until: until ?? '' });
    }),
  );
  return {
    calls: sums.reduce((sum, { calls }) => sum + calls, 0),
    cost_usd: fromPusd(sumPusd(sums.map(({ cost_pusd }) => cost_pusd))),
  };
}

/** The call that wrote the last of these messages that the session holds; null where it holds none. */
async function findLastCall(
  { store }: Pick<Storage, 'store'>,
  id: SessionId,
  messages: readonly StoredMessage[],
): Promise<string | null> {
  const last = messages.findLast(({ session_id, role }) => session_id === id && role === 'assistant');
  if (last === undefined) return null;
  return store.comparisons.callOfMessage(id, last.id);
}

async function describeSide(
  { store }: Pick<Storage, 'store'>,
  { id }: SessionRecord,
  { shared, own }: Record<'shared' | 'own', readonly StoredMessage[]>,
): Promise<ComparedSide> {
  const after = await findLastCall({ store }, id, shared);
  const [sums, work, changes] = await Promise.all([
    store.comparisons.sumCalls(id, { after, until: null }),
    store.comparisons.countWork(id, after),
    store.comparisons.changes(id, after),
  ]);
  const answers = own.filter(({ role, metadata }) => role === 'assistant' && metadata.status === 'complete');
  const last = answers.at(-1);
  return {
    session_id: id,
    model: last?.metadata.model ?? null,
    calls: sums.calls,
    ...work,
    input_tokens: sums.input_tokens,
    output_tokens: sums.output_tokens,
    cost_usd: fromPusd(sums.cost_pusd),
    changed_files: summariseChanges(changes, () => []).changed_files,
    final_text: last === undefined ? null : joinText(last.content),
  };
}
