// What a delegation did not ask for comes back as absent (01 §9), and workers of sessions (13 §3.4).
import { describe, expect, test } from 'vitest';
import type { SessionWorker } from '#protocol/worker-definition.ts';
import { delegationRecord } from '../../support/records.ts';
import { storedSession, storedTurn } from './nouns.ts';
import type { OpenStore } from './world.ts';

export function delegationSuite(openWorld: OpenStore): void {
  test('a worker of a session is replaced by that session, and by no other', async () => {
    const world = await openWorld();
    const session = await storedSession(world);
    const worker: SessionWorker = {
      root_session_id: session.id,
      name: 'x',
      created_by_session_id: session.id,
      created_by_tool_use_id: world.ids.toolUse(),
      yaml: 'name: x',
      path: null,
      digest: 'a'.repeat(64),
      edited_by_user: false,
      created_at: world.time.now,
    };
    const refined = { ...worker, created_by_tool_use_id: world.ids.toolUse(), yaml: 'name: x\n', edited_by_user: true };
    const foreign = { ...worker, created_by_session_id: world.ids.session(), yaml: 'foreign' };
    await world.journal.commit({ writes: [{ kind: 'worker.insert', worker }], emit: [] });
    for (const next of [refined, foreign])
      await world.journal.commit({ writes: [{ kind: 'worker.replace', worker: next }], emit: [] });
    expect(await world.store.workers.list(session.id)).toEqual([refined]);
  });

  describe('a delegation', () => {
    test.each([
      { allowed_tools: null, allowed_tool_count: null },
      { allowed_tools: [], allowed_tool_count: 0 },
      { allowed_tools: ['read_file', 'nope'], allowed_tool_count: 2 },
    ])('that asked for the tools $allowed_tools has the count $allowed_tool_count', async (tools) => {
      const world = await openWorld();
      const turn = await storedTurn(world, await storedSession(world));
      const { allowed_tools, allowed_tool_count } = tools;
      const plain = delegationRecord(world, turn, world.ids.toolUse(), { allowed_tool_count });
      const delegation = { ...plain, request: { ...plain.request, allowed_tools } };
      await world.journal.commit({ writes: [{ kind: 'delegation.insert', delegation }], emit: [] });
      expect(await world.store.delegations.get(plain.tool_use_id)).toEqual(delegation);
    });

    // Promise 04.28: a delegation without a time limit is stored and read as such.
    test.each([null, 0.5, 300])('with the time limit %s has it', async (timeout_seconds) => {
      const world = await openWorld();
      const turn = await storedTurn(world, await storedSession(world));
      const delegation = delegationRecord(world, turn, world.ids.toolUse(), { timeout_seconds });
      await world.journal.commit({ writes: [{ kind: 'delegation.insert', delegation }], emit: [] });
      expect((await world.store.delegations.get(delegation.tool_use_id))?.timeout_seconds).toBe(timeout_seconds);
      expect((await world.store.delegations.view(delegation.tool_use_id))?.timeout_seconds).toBe(timeout_seconds);
    });
  });
}
