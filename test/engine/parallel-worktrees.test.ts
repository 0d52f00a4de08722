// Requests about one worker in a worktree that several clients send at once: one clear answer each, work applied once, nothing half (20 §2.5, §3).
import fs from 'node:fs';
import path from 'node:path';
import { describe, expect, it } from 'vitest';
import { recover } from '#core/engine/lifecycle.ts';
import { applyKeptChanges, finishKeptChanges, sweepWorktrees } from '#core/engine/manage-worktrees.ts';
import type { SessionId } from '#protocol/ids.ts';
import { toolText } from '#protocol/tool.ts';
import { startEngine, type TestEngine } from '../support/engine.ts';
import { openDoor, type TestDoor } from '../support/http.ts';
import { gate } from '../support/moments.ts';
import { call, planner, scenario, worker } from '../support/scenario.ts';
import { tool } from '../support/tools.ts';
import {
  closings,
  edit,
  FREE_TOOLS,
  git,
  isolated,
  leftovers,
  readFile,
  startInRepository,
  step,
  write,
} from '../support/worktrees.ts';

const FILES = { 'a.txt': 'one\n', 'b.txt': 'b\n', 'c.txt': 'c\n' };
const kept = (task: string) => isolated(task, { apply: 'never' });
const keepJob = [
  ...planner(step(kept('job')), { text: 'ok' }),
  ...worker('job', step(edit('a.txt', 'one', 'two'), write('new.txt', 'new')), { text: 'done' }),
];

/**
 * A worker that has ended and whose changes are kept, behind a server.
 * @param rules of later turns and workers; they come first, since a continued worker has the task of the earlier one too
 */
async function keepChanges(rules: readonly object[] = []): Promise<{
  readonly t: TestEngine;
  readonly door: TestDoor;
  readonly session: string;
  readonly id: SessionId;
  apply(id?: string): ReturnType<TestDoor['call']>;
}> {
  const t = await startInRepository(FILES, { scenario: scenario([...rules], keepJob) });
  const door = await openDoor(t);
  const session = await t.session();
  await t.run(session, 'go');
  const id = closings(t)[0]!.worker_session_id as SessionId;
  return { t, door, session: session.id, id, apply: (of = id) => door.call('POST', `/delegations/${of}/apply`, {}) };
}

/** Stops the writing of merges, from the first on, until the gate opens. */
function holdWrites(t: TestEngine) {
  const [begun, go] = [gate(), gate()];
  const merges: string[] = [];
  const { write: writeMerge } = t.engine.worktrees;
  Object.assign(t.engine.worktrees, {
    write: async (...args: Parameters<typeof writeMerge>) => {
      merges.push(args[0].session_id);
      begun.open();
      await go.opened;
      return writeMerge(...args);
    },
  });
  return { begun, go, merges };
}

describe('requests that arrive at once', () => {
  it('apply a worker twice: both are answered, the changes are written once', async () => {
    const { t, id, session, apply } = await keepChanges();
    const { begun, go, merges } = holdWrites(t);
    const answers = Promise.all([apply(), apply(), apply()]);
    await begun.opened;
    go.open();
    const applied = { status: 200, body: { worker_session_id: id, applied: true, conflicts: [] } };
    expect(await answers).toMatchObject([applied, applied, applied]);
    expect(merges).toEqual([id]);
    expect([readFile(t, 'a.txt'), readFile(t, 'new.txt')]).toEqual(['two\n', 'new']);
    const page = await t.engine.store.delegations.list(session, { recursive: false, after: null, limit: 9 });
    expect(page.rows).toMatchObject([{ applied: true, conflicts: [] }]);
    expect(leftovers(t)).toEqual([]);
  });

  it('apply a worker, read its changes and free it: what is freed is not found, and does not come back', async () => {
    const { t, id, door, apply } = await keepChanges();
    const [applied, diff, files, pruned] = await Promise.all([
      apply(),
      door.call('GET', `/delegations/${id}/diff`),
      door.call('GET', `/delegations/${id}/files`),
      door.call('POST', '/worktrees/prune', { all: true }),
    ]);
    expect(pruned).toMatchObject({ status: 200, body: { worker_session_ids: [id] } });
    for (const { status } of [applied!, diff!, files!]) expect([200, 404]).toContain(status);
    expect(readFile(t, 'a.txt')).toBe(applied!.status === 200 ? 'two\n' : 'one\n');
    expect(fs.existsSync(path.join(t.workspace, 'new.txt'))).toBe(applied!.status === 200);
    expect(await t.engine.store.worktrees.list()).toEqual([]);
    expect(git(t.workspace, 'for-each-ref', 'refs/metis')).toBe('');
    expect(leftovers(t)).toEqual([]);
    expect(await apply()).toMatchObject({ status: 404, body: { error: { code: 'not_found' } } });
  });

  it('apply a worker that another request frees: it is not found, and nothing is written', async () => {
    const { t, id, door, apply } = await keepChanges();
    const [freeing, go] = [gate(), gate()];
    const { removeRefs } = t.engine.worktrees;
    Object.assign(t.engine.worktrees, {
      removeRefs: async (...args: Parameters<typeof removeRefs>) => {
        freeing.open();
        await go.opened;
        return removeRefs(...args);
      },
    });
    const pruned = door.call('POST', '/worktrees/prune', { all: true });
    await freeing.opened;
    const applied = apply();
    // It has read the row by then, which goes while it waits.
    await door.call('GET', '/worktrees');
    go.open();
    expect(await pruned).toMatchObject({ status: 200, body: { worker_session_ids: [id] } });
    expect(await applied).toMatchObject({ status: 404, body: { error: { code: 'not_found' } } });
    expect(readFile(t, 'a.txt')).toBe('one\n');
    expect(await t.engine.store.worktrees.list()).toEqual([]);
    expect(leftovers(t)).toEqual([]);
  });

  it('apply a worker whose session is being purged: it is not found, and nothing is written', async () => {
    const { t, id, door, session, apply } = await keepChanges();
    const [purging, go] = [gate(), gate()];
    const { purge } = t.engine.journal;
    Object.assign(t.engine.journal, {
      purge: async (...args: Parameters<typeof purge>) => {
        purging.open();
        await go.opened;
        return purge.apply(t.engine.journal, args);
      },
    });
    const purged = door.call('DELETE', `/sessions/${session}?purge=true`);
    await purging.opened;
    const applied = await apply();
    go.open();
    expect(applied).toMatchObject({ status: 404, body: { error: { code: 'not_found' } } });
    expect(await purged).toMatchObject({ status: 200, body: { purged: true } });
    expect(readFile(t, 'a.txt')).toBe('one\n');
    expect(await t.engine.store.worktrees.list()).toEqual([]);
    expect([git(t.workspace, 'for-each-ref', 'refs/metis'), leftovers(t)]).toEqual(['', []]);
    expect(await apply(id)).toMatchObject({ status: 404 });
  });

  it('apply a worker and continue it: its changes are in the workspace once, whichever is first', async () => {
    const more = worker('more', step(write('more.txt', 'more')), { text: 'more done' });
    const { t, id, door, session, apply } = await keepChanges(more);
    const { begun, go } = holdWrites(t);
    const continued = () =>
      door.call(
        'POST',
        `/sessions/${session}/delegations`,
        { tier: 'fast', task: 'more', continue: id, isolation: 'worktree' },
        { prefer: 'wait=60' },
      );
    const applied = apply();
    await begun.opened;
    // The base of the new worker is taken before or behind the writing, and never within it.
    const followed = continued();
    go.open();
    expect(await applied).toMatchObject({ status: 200, body: { applied: true } });
    expect(await followed).toMatchObject({ status: 200, body: { success: true, applied: true, conflicts: [] } });
    const state = ['a.txt', 'new.txt', 'more.txt'].map((name) => readFile(t, name));
    expect(state).toEqual(['two\n', 'new', 'more']);
    expect(leftovers(t)).toEqual([]);
  });

  it('continue a worker twice: two workers begin with its changes, which are applied once', async () => {
    const jobs = ['left', 'right'].flatMap((side) =>
      worker(`the ${side} side`, step(write(`${side}.txt`, side)), { text: `${side} done` }),
    );
    const { t, id, door, session } = await keepChanges(jobs);
    const answers = await Promise.all(
      ['left', 'right'].map((side) =>
        door.call(
          'POST',
          `/sessions/${session}/delegations`,
          { tier: 'fast', task: `the ${side} side`, continue: id, isolation: 'worktree' },
          { prefer: 'wait=60' },
        ),
      ),
    );
    for (const answer of answers)
      expect(answer).toMatchObject({ status: 200, body: { success: true, applied: true, conflicts: [] } });
    const state = ['a.txt', 'new.txt', 'left.txt', 'right.txt'].map((name) => readFile(t, name));
    expect(state).toEqual(['two\n', 'new', 'left', 'right']);
    expect(new Set(answers.map(({ body }) => body.worker_session_id)).size).toBe(2);
    expect(leftovers(t)).toEqual([]);
  });

  it('apply a worker while the turn writes what the next one left: one after the other, both whole', async () => {
    const rules = [
      { match: { role: 'planner', turn: 2, call: 1 }, respond: step(isolated('next')) },
      { match: { role: 'planner', turn: 2, call: 2 }, respond: { text: 'ok' } },
      ...worker('next', step(edit('b.txt', 'b', 'B'), edit('c.txt', 'c', 'C')), { text: 'next done' }),
    ];
    const { t, id, session, apply } = await keepChanges(rules);
    const { begun, go, merges } = holdWrites(t);
    const turn = await t.submit(session, 'go on');
    await begun.opened;
    const applied = apply();
    go.open();
    expect(await applied).toMatchObject({ status: 200, body: { applied: true, conflicts: [] } });
    expect(await t.ended(turn)).toMatchObject({ status: 'completed' });
    expect(closings(t)[1]).toMatchObject({ applied: true, conflicts: [] });
    expect(merges).toEqual([closings(t)[1]!.worker_session_id, id]);
    expect(Object.keys(FILES).map((name) => readFile(t, name))).toEqual(['two\n', 'B\n', 'C\n']);
    expect(leftovers(t)).toEqual([]);
  });

  it('apply a worker that still runs: the conflict says so, and its end is not disturbed', async () => {
    const [inside, go] = [gate(), gate()];
    const stay = tool('stay', {
      execute: async () => {
        inside.open();
        await go.opened;
        return toolText('ok');
      },
    });
    const t = await startInRepository(FILES, {
      tools: [stay],
      scenario: scenario(
        planner(step(isolated('job')), { text: 'ok' }),
        worker('job', step(edit('a.txt', 'one', 'two')), step(call('stay', {})), { text: 'done' }),
      ),
    });
    const door = await openDoor(t);
    const turn = await t.submit(await t.session(), 'go');
    await inside.opened;
    const id = String((await t.event('delegate.started')).payload.worker_session_id);
    const busy = { status: 409, body: { error: { code: 'turn_in_flight' } } };
    const answers = [
      door.call('POST', `/delegations/${id}/apply`, {}),
      door.call('GET', `/delegations/${id}/diff`),
      door.call('GET', `/delegations/${id}/files`),
    ];
    for (const answer of await Promise.all(answers)) expect(answer).toMatchObject(busy);
    go.open();
    expect(await t.ended(turn)).toMatchObject({ status: 'completed' });
    expect(readFile(t, 'a.txt')).toBe('two\n');
    expect(leftovers(t)).toEqual([]);
  });

  it('conclude and cancel a worker: it ends once, and its changes are applied or kept whole', async () => {
    const [inside, go] = [gate(), gate()];
    const stay = tool('stay', {
      execute: async (_input, { signal }) => {
        inside.open();
        await Promise.race([go.opened, new Promise((resolve) => signal.addEventListener('abort', resolve))]);
        return toolText('ok');
      },
    });
    const t = await startInRepository(FILES, {
      tools: [stay],
      scenario: scenario(
        planner(step(isolated('job')), { text: 'ok' }),
        worker('job', step(edit('a.txt', 'one', 'two'), write('new.txt', 'new')), step(call('stay', {})), {
          text: 'done',
        }),
      ),
    });
    const door = await openDoor(t);
    const turn = await t.submit(await t.session(), 'go');
    await inside.opened;
    const id = String((await t.event('delegate.started')).payload.worker_session_id);
    const { current_turn_id } = (await door.call('GET', `/sessions/${id}`)).body;
    const end = (what: string) => door.call('POST', `/sessions/${id}/turns/${current_turn_id}/${what}`, {});
    const answers = await Promise.all([end('conclude'), end('cancel'), end('conclude'), end('cancel')]);
    go.open();
    for (const { status } of answers) expect([200, 202, 409]).toContain(status);
    expect(await t.ended(turn)).toMatchObject({ status: 'completed' });
    const ends = t.events.filter(({ type, session_id }) => session_id === id && /^turn\.(comp|canc|fail)/.test(type));
    expect(ends).toHaveLength(1);
    const [closed] = closings(t);
    expect(closings(t)).toHaveLength(1);
    // Cancelling wins where both came in time.
    const isWhole = closed!.applied === true;
    expect([readFile(t, 'a.txt'), fs.existsSync(path.join(t.workspace, 'new.txt'))]).toEqual(
      isWhole ? ['two\n', true] : ['one\n', false],
    );
    const later = await door.call('POST', `/delegations/${id}/apply`, {});
    expect(later).toMatchObject({ status: 200, body: { applied: true, conflicts: [] } });
    expect([readFile(t, 'a.txt'), readFile(t, 'new.txt')]).toEqual(['two\n', 'new']);
    expect(leftovers(t)).toEqual([]);
  });

  it('finish after a restart what an apply had half written when the process died', async () => {
    const { t, id, session } = await keepChanges();
    const [stopped, killed] = [gate(), gate()];
    Object.assign(t.engine.worktrees, {
      // The process dies here, with the first of two files written.
      write: async () => {
        fs.writeFileSync(path.join(t.workspace, 'a.txt'), 'two\n');
        stopped.open();
        await killed.opened;
        throw new Error('killed');
      },
    });
    const lost = applyKeptChanges(t.engine, id).catch(() => {});
    await stopped.opened;
    t.abandon();
    killed.open();
    await lost;
    const u = await startEngine({ scenario: scenario(keepJob), config: FREE_TOOLS, folder: t.folder });
    await recover(u.engine);
    await finishKeptChanges(u.engine);
    expect(await sweepWorktrees(u.engine)).toEqual([]);
    expect([readFile(u, 'a.txt'), readFile(u, 'new.txt')]).toEqual(['two\n', 'new']);
    const page = await u.engine.store.delegations.list(session, { recursive: false, after: null, limit: 9 });
    expect(page.rows).toMatchObject([{ applied: true, conflicts: [] }]);
    expect(leftovers(u)).toEqual([]);
  });
});
