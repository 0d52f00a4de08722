// Batches that share a transaction leave what they leave one after the other, whichever of them are refused (00 §3).
import { describe, expect, test } from 'vitest';
import type { Batch, Write } from '#core/ports/journal-writer.ts';
import type { SessionRecord } from '#protocol/session.ts';
import type { TurnRecord } from '#protocol/turn.ts';
import { callCompleted, systemEvent, turnCompleted } from '../../support/drafts.ts';
import { delegationRecord, outcome, sessionRecord, turnRecord, workerRecord } from '../../support/records.ts';
import { type OpenStore, publishedEvents, type World } from './world.ts';

const BATCHES = 30;
/** Sessions and open turns that stand before. */
const BEFORE = 6;

/** A purge of the session it names, or a batch. */
type Step = Batch | { readonly purge: SessionRecord };

/** Steps of a few sessions, of which many meet what another of the same tick has done. */
function steps(world: World, random: () => number): readonly Step[] {
  const sessions: SessionRecord[] = [];
  const turns: TurnRecord[] = [];
  let label = 0;
  const any = <T>(of: readonly T[]) => of[Math.floor(random() * of.length)]!;
  const told = (session: SessionRecord) => systemEvent(`e${label++}`, { session_id: session.id });
  // Among several nodes whoever speaks of a session knows that it is stored.
  const known = (session: SessionRecord) => {
    if (!world.several || sessions.length < BEFORE / 2) sessions.push(session);
  };
  const inserted = (session: SessionRecord): Step => {
    known(session);
    return { writes: [{ kind: 'session.insert', session }], emit: [told(session)] };
  };
  const end = (turn: TurnRecord): Write => {
    const { id: turn_id, session_id } = turn;
    return { kind: 'turn.end', turn_id, session_id, outcome: outcome(world), unread_inputs: 0 };
  };
  const sessionOf = (turn: TurnRecord) => sessions.find(({ id }) => id === turn.session_id)!;
  const kinds: (() => Step)[] = [
    () => inserted(sessionRecord(world)),
    // Its insertion goes with an event of nobody: what it left in memory must go too.
    () => {
      const session = sessionRecord(world);
      known(session);
      return {
        writes: [{ kind: 'session.insert', session }],
        emit: [told(session), systemEvent('nobody', { session_id: world.ids.session() })],
      };
    },
    () => inserted(any(sessions)),
    () => {
      const turn = turnRecord(world, any(sessions));
      turns.push(turn);
      return { writes: [{ kind: 'turn.insert', turn }], emit: [told(sessionOf(turn))] };
    },
    () => {
      const turn = any(turns);
      const beside = turns.filter(({ session_id }) => session_id === turn.session_id);
      return { writes: [end(turn)], emit: [turnCompleted(any(beside))] };
    },
    () => {
      const turn = any(turns);
      return { writes: [end(turn)], emit: [turnCompleted(turn)] };
    },
    () => {
      const turn = any(turns);
      return { emit: [callCompleted(world, sessionOf(turn), turn)] };
    },
    () => {
      const turn = any(turns);
      const call = world.ids.toolUse();
      const worker = workerRecord(world, sessionOf(turn), call);
      known(worker);
      const delegation = delegationRecord(world, turn, call, { worker_session_id: worker.id });
      return {
        writes: [
          { kind: 'session.insert', session: worker },
          { kind: 'delegation.insert', delegation },
        ],
        emit: [told(worker)],
      };
    },
    () => ({ emit: [told(any(sessions))] }),
    () => ({ emit: [systemEvent(`e${label++}`)] }),
    () => {
      const { id } = any(sessions);
      return {
        writes: [{ kind: 'session.end', session_id: id, disposition: 'completed', at: world.time.now }],
        emit: [],
      };
    },
    () => ({
      writes: [{ kind: 'session.set_model', session_id: any(sessions).id, model: `m${label++}`, at: world.time.now }],
      emit: [],
    }),
    () => ({ purge: any(sessions) }),
  ];
  const made = Array.from({ length: BEFORE }, (_, i) => kinds[i < BEFORE / 2 ? 0 : 3]!());
  while (made.length < BEFORE + BATCHES) made.push(any(kinds)());
  // What several nodes write to different trees comes in no order, and a purge is of a tree that nobody works on.
  return world.several ? made.filter((step) => !('purge' in step)) : made;
}

async function outcomes(world: World, all: readonly Step[], together: boolean): Promise<readonly unknown[]> {
  const run = async (step: Step): Promise<unknown> => {
    try {
      if ('purge' in step) return await world.journal.purge(step.purge.id as never);
      return (await world.journal.commit(step)).length;
    } catch (error) {
      const { code, message } = error as { code?: string; message: string };
      return code ?? message.replace(/^.*(UNIQUE|duplicate key|FOREIGN KEY).*$/, '$1');
    }
  };
  if (together) return Promise.all(all.map(run));
  const said: unknown[] = [];
  for (const step of all) said.push(await run(step));
  return said;
}

const TABLES = [
  'SELECT id, active_model, disposition, turn_count FROM sessions ORDER BY id',
  'SELECT id, session_id, status FROM turns ORDER BY id',
  'SELECT tool_use_id, worker_session_id, status FROM delegations ORDER BY 1',
  'SELECT session_id, turn_id, type, actor, payload_json FROM events ORDER BY session_id, id',
  'SELECT session_id, turn_id, root_session_id, cost_pusd FROM llm_calls ORDER BY session_id, event_id',
  'SELECT session_id FROM event_sessions ORDER BY 1',
];
async function left(world: World): Promise<unknown> {
  return Promise.all(TABLES.map((sql) => world.rows(sql)));
}

export function sharedSuite(openWorld: OpenStore): void {
  describe('together', () => {
    test('30 batches at once, some refused, leave and say what they do one after the other; each event is told once, in order', async () => {
      let runs = 1;
      for (let run = 1; run <= runs; run++) {
        let seed = run * 7919;
        const random = () => {
          seed = (seed * 48271) % 2147483647;
          return seed / 2147483647;
        };
        const [one, other] = [await openWorld(), await openWorld()];
        runs = one.several ? 3 : 12;
        const all = steps(one, random);
        const first = all.slice(BEFORE);
        for (const world of [one, other]) await outcomes(world, all.slice(0, BEFORE), false);
        const said = await outcomes(one, first, true);
        expect(said, `run ${run}`).toEqual(await outcomes(other, first, false));
        expect(await left(one), `run ${run}`).toEqual(await left(other));
        // What they keep in memory is what is stored: the same again meets the same.
        expect(await outcomes(one, first, true), `run ${run} again`).toEqual(await outcomes(other, first, false));
        expect(await left(one), `run ${run} again`).toEqual(await left(other));
        const ids = publishedEvents(one).map(({ id }) => id);
        expect(new Set(ids).size).toBe(ids.length);
        if (!one.several) expect(ids).toEqual(ids.toSorted());
        expect(ids.length).toBe(publishedEvents(other).length);
        expect(await one.differences()).toEqual([]);
        await one.close();
        await other.close();
      }
    });
  });
}
