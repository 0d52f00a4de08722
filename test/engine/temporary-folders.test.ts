// Each worker has a temporary folder of its own, which goes with its delegation (20 §2).
import fs from 'node:fs';
import path from 'node:path';
import { expect, it } from 'vitest';
import { removeTemporaryFolders } from '#core/engine/lifecycle.ts';
import { startEngine } from '../support/engine.ts';
import { restart } from '../support/moments.ts';
import { call, delegate, planner, scenario, worker } from '../support/scenario.ts';
import { until } from '../support/until.ts';

const config = {
  tool_confirmation: { default: { none: 'auto', read: 'auto', write: 'auto', execute: 'auto' } },
} as never;
const run = (command: string) => ({ tool_calls: [call('shell', { command })] });
const folders = (folder: string) =>
  fs.existsSync(path.join(folder, 'tmp')) ? fs.readdirSync(path.join(folder, 'tmp')) : [];

// Promise 20.15: two workers that write the same name below $TMPDIR do not meet.
it('claude-code#87243: workers that write the same name below $TMPDIR do not meet, over several commands', async () => {
  const writes = (name: string) =>
    worker(
      name,
      run(`echo ${name} > $TMPDIR/out; touch ${name}; until [ -e left -a -e right ]; do sleep 0.02; done`),
      run('cat $TMPDIR/out $TMP/out $TEMP/out'),
      { text: '{{last_tool_result}}' },
    );
  const t = await startEngine({
    config,
    scenario: scenario(
      planner({ tool_calls: [delegate('left'), delegate('right')] }, run('echo own=$TMPDIR'), {
        text: '{{last_tool_result}}',
      }),
      writes('left'),
      writes('right'),
    ),
  });
  const session = await t.session();
  const turn = await t.run(session, 'go');
  const { rows } = await t.engine.store.delegations.list(session.id, { recursive: false, after: null, limit: 9 });
  expect(
    rows.map(({ output }) =>
      String(output)
        .match(/left|right/g)
        ?.slice(-3),
    ),
  ).toEqual([
    ['left', 'left', 'left'],
    ['right', 'right', 'right'],
  ]);
  expect(folders(t.folder)).toEqual([]);
  // A planner has none.
  expect(turn.output).not.toContain(path.join(t.folder, 'tmp'));
});

it('outlives a crash with its worker, and goes with it; the next start removes what another one left', async () => {
  const first = await startEngine({
    config,
    scenario: scenario(
      planner({ tool_calls: [delegate('dig')] }),
      [{ match: { role: 'worker', call: 1 }, respond: run('echo kept > $TMPDIR/out') }],
      [{ match: { role: 'worker', call: 2 }, respond: { hang: true } }],
    ),
  });
  const session = await first.session();
  const turnId = await first.submit(session, 'go');
  await until(() => first.adapter.requests.length === 3);
  expect(folders(first.folder)).toHaveLength(1);
  const left = path.join(first.folder, 'tmp', 'sess_01ARZ3NDEKTSV4RRFFQ69G5FAV');
  fs.mkdirSync(left);
  const second = await restart(first, {
    config,
    scenario: scenario(
      [{ match: { role: 'worker', call: 2 }, respond: run('cat $TMPDIR/out') }],
      [{ match: { role: 'worker', call: 3 }, respond: { text: '{{last_tool_result}}' } }],
      [{ match: { role: 'planner' }, respond: { text: 'done' } }],
    ),
  });
  await removeTemporaryFolders(second.engine);
  expect(fs.existsSync(left)).toBe(false);
  expect(await second.ended(turnId)).toMatchObject({ output: 'done' });
  const { rows } = await second.engine.store.delegations.list(session.id, { recursive: false, after: null, limit: 9 });
  expect(rows[0]!.output).toContain('kept');
  expect(folders(first.folder)).toEqual([]);
});
