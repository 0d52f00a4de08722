// Workers whose changes count only where a check passes on them (20 §10).
import fs from 'node:fs';
import path from 'node:path';
import { describe, expect, it } from 'vitest';
import { scoreTurn } from '#core/engine/control-turn.ts';
import { listTrust, trustFile } from '#core/engine/manage-trust.ts';
import { defaultConfig } from '#protocol/config.ts';
import type { WorkerChanges } from '#protocol/file-change.ts';
import type { SessionId, TurnId } from '#protocol/ids.ts';
import { joinText } from '#protocol/message.ts';
import { fromPusd, type Pusd, toPusd } from '#protocol/money.ts';
import { toolText } from '#protocol/tool.ts';
import { createAnalytics } from '#store/sqlite/report/analytics.ts';
import { type ConfigOver, startEngine, type TestEngine, tempFolder } from '../support/engine.ts';
import { at, restart } from '../support/moments.ts';
import { call, delegate, planner, scenario, worker } from '../support/scenario.ts';
import { resultsOf, textOf } from '../support/stored.ts';
import { tool } from '../support/tools.ts';
import { until } from '../support/until.ts';
import { initRepository, leftovers, startInRepository } from '../support/worktrees.ts';

const auto = { per_tool: { delegate: 'auto', write_file: 'auto', edit_file: 'auto', shell: 'auto' } } as const;
const test = { command: 'sh test.sh', timeout_seconds: 60, protect: ['test.sh'], paths: null };
const config = { tool_confirmation: auto, checks: { test } } as ConfigOver;
/** Passes where `answer.txt` holds 42. */
const files = {
  'answer.txt': '41\n',
  'test.sh': 'grep -qx 42 answer.txt || { echo "answer is $(cat answer.txt)"; exit 3; }\n',
};

const shell = (command: string) => call('shell', { command });
const step = (...tool_calls: unknown[]) => ({ tool_calls });
const checked = (task: string, over: object = {}) => delegate(task, { check: 'test', ...over });
const read = (t: TestEngine, file: string) => fs.readFileSync(path.join(t.workspace, file), 'utf8');
const texts = async (t: TestEngine, session: { readonly id: string }) => (await resultsOf(t, session.id)).map(textOf);
const payloads = (t: TestEngine, type: string) => t.events.filter((e) => e.type === type).map((e) => e.payload);
const closing = (t: TestEngine) =>
  t.events.find((e) => e.type === 'delegate.completed' || e.type === 'delegate.failed')!.payload as WorkerChanges & {
    readonly failure_mode?: string;
  };
const answerWith = (output_tokens: number) => ({ text: 'done', usage: { input_tokens: 1234, output_tokens } });
/** Answers of the only worker's n-th turn, call by call. */
const turn = (n: number, ...responses: readonly object[]) =>
  responses.map((respond, i) => ({ match: { role: 'worker', turn: n, call: i + 1 }, respond }));

describe('a worker with a check', () => {
  it('is applied and verified where the check passes on the merge', async () => {
    const t = await startInRepository(files, {
      config,
      scenario: scenario(
        planner(step(checked('job')), { text: 'ok' }),
        worker('job', step(shell('echo 42 > answer.txt')), { text: 'done' }),
      ),
    });
    const session = await t.session();
    await t.run(session, 'go');
    expect(read(t, 'answer.txt')).toBe('42\n');
    expect((await texts(t, session))[0]).toBe('done\n[checked by test: passed]\n[changed 1 file: answer.txt]');
    expect(payloads(t, 'delegate.checked')).toMatchObject([{ attempt: 1, check: 'test', passed: true, exit_code: 0 }]);
    expect(closing(t)).toMatchObject({ applied: true, check: 'test', verified: true, attempts: 1 });
    expect(leftovers(t)).toEqual([]);
  });

  it('is not applied where the check fails, whatever the worker says', async () => {
    const t = await startInRepository(files, {
      config,
      scenario: scenario(
        planner(step(checked('job')), { text: 'ok' }),
        worker('job', step(shell('echo 43 > answer.txt; echo "exit 0" > test.sh')), { text: 'all tests pass' }),
      ),
    });
    const session = await t.session();
    await t.run(session, 'go');
    expect([read(t, 'answer.txt'), read(t, 'test.sh')]).toEqual([files['answer.txt'], files['test.sh']]);
    const [text = ''] = await texts(t, session);
    const [json = '', ...notes] = text.split('\n');
    expect(JSON.parse(json)).toMatchObject({
      error: 'check_failed',
      output: 'all tests pass\n\n[check test failed with exit code 3; the end of its output:]\nanswer is 43\n',
    });
    expect(notes.slice(0, 3)).toEqual([
      '[checked by test: failed]',
      '[changed 1 file: answer.txt]',
      '[changes to protected files dropped: test.sh]',
    ]);
    expect(closing(t)).toMatchObject({
      failure_mode: 'check_failed',
      applied: false,
      verified: false,
      attempts: 1,
      protected_changes: ['test.sh'],
    });
    expect(leftovers(t)).toEqual([]);
  });

  // Promise 20.22: `on_fail` climbs its rungs in order within one delegation, whose cost is that of all its attempts.
  it('goes on with the output of the check, on the model of the rung, until it passes', async () => {
    const rungs = { on_fail: ['retry', 'tier:balanced'], max_cost_usd: '5' };
    const t = await startInRepository(files, {
      config,
      scenario: scenario(
        planner(step(checked('job', rungs)), { text: 'ok' }),
        turn(1, step(shell('echo 1 > answer.txt')), { text: 'done' }),
        turn(2, step(shell('echo 2 > answer.txt')), { text: 'done' }),
        turn(3, step(shell('cat answer.txt > seen.txt; echo 42 > answer.txt')), { text: 'really' }),
      ),
    });
    const session = await t.session();
    await t.run(session, 'go');
    expect([read(t, 'answer.txt'), read(t, 'seen.txt')]).toEqual(['42\n', '2\n']);
    const attempts = payloads(t, 'delegate.checked');
    expect(attempts).toMatchObject([
      { attempt: 1, passed: false, exit_code: 3 },
      { attempt: 2, passed: false },
      { attempt: 3, passed: true },
    ]);
    const [{ worker_session_id: worker } = { worker_session_id: '' }] = attempts as { worker_session_id: string }[];
    const routes = t.events.filter((e) => e.type === 'route.decided' && e.session_id === worker);
    expect(routes.map((e) => (e.payload as { chosen_model: string }).chosen_model)).toEqual([
      'anthropic:claude-haiku-4-5',
      'anthropic:claude-haiku-4-5',
      'anthropic:claude-sonnet-4-6',
    ]);
    const calls = t.events.filter((e) => e.type === 'llm.call_completed' && e.session_id === worker);
    const cost = calls.reduce((sum, e) => sum + toPusd((e.payload as { cost_usd: string }).cost_usd), 0n);
    expect(closing(t)).toMatchObject({ attempts: 3, verified: true, worker_total_cost_usd: fromPusd(cost) });
    expect(payloads(t, 'delegate.started')).toHaveLength(1);
    const history = await t.engine.store.messages.history(worker as SessionId);
    const asked = history.filter(({ role }) => role === 'user').map(({ content }) => joinText(content));
    expect(asked[1]).toContain('[check test failed with exit code 3; the end of its output:]\nanswer is 1\n');
    const rows = await t.engine.store.attempts.list((attempts[0] as { tool_use_id: string }).tool_use_id);
    expect(rows.map(({ rung, passed }) => [rung, passed])).toEqual([
      [null, false],
      ['retry', false],
      ['tier:balanced', true],
    ]);
  });

  // Promise 20.22: the cap of a delegation holds over all its attempts, and so do its tokens and its clock.
  it.each([
    ['tokens', { max_tokens: 60 }, { usage: { input_tokens: 10, output_tokens: 30 } }, 'max_tokens_exceeded'],
    ['money', { max_cost_usd: '0.03' }, { usage: { input_tokens: 1000, output_tokens: 2000 } }, 'budget_exceeded'],
    ['clock', { timeout_seconds: 1 }, { delay_ms: 700 }, 'timeout'],
  ])('shares its %s over all rungs', async (_what, limit, answer, failure) => {
    const t = await startInRepository(files, {
      config: { ...config, turn: { max_llm_calls: 50, max_output_tokens: 2000 } },
      scenario: scenario(
        planner(step(checked('job', { on_fail: ['retry', 'retry'], ...limit })), { text: 'ok' }),
        ...[1, 2, 3].map((n) => turn(n, { text: 'done', ...answer })),
      ),
    });
    await t.run(await t.session(), 'go');
    const end = closing(t);
    expect(end).toMatchObject({ failure_mode: failure, verified: false });
    if (failure === 'timeout') return;
    expect(end).toMatchObject({ attempts: 2 });
    if (failure !== 'budget_exceeded') return;
    const cost = toPusd((end as unknown as { worker_total_cost_usd: string }).worker_total_cost_usd);
    expect(cost).toBeLessThanOrEqual(toPusd('0.03'));
    expect(cost).toBeGreaterThan(toPusd('0.02'));
  });

  it('does not reach the workspace where it is right alone and wrong in the merge', async () => {
    const only = { command: '[ ! -e a ] || [ ! -e b ]', timeout_seconds: 60, protect: [], paths: null };
    const t = await startInRepository(files, {
      config: { ...config, checks: { test: only } },
      scenario: scenario(
        planner(step(checked('make a'), checked('make b')), { text: 'ok' }),
        worker('make a', step(shell('touch a')), { text: 'done' }),
        worker('make b', step(shell('touch b')), { text: 'done' }),
      ),
    });
    await t.run(await t.session(), 'go');
    const made = ['a', 'b'].filter((name) => fs.existsSync(path.join(t.workspace, name)));
    expect(made).toHaveLength(1);
    const passed = payloads(t, 'delegate.checked').map((one) => (one as { passed: boolean }).passed);
    expect(passed.sort()).toEqual([false, true]);
  });

  it('is checked again where the workspace changed meanwhile, and not applied where it changes each time', async () => {
    const folder = tempFolder();
    const marker = path.join(folder, 'marker');
    const saved = path.join(folder, 'workspace/other.txt');
    const once = `[ -e ${marker} ] || { touch ${marker}; echo saved > ${saved}; }`;
    const always = `date +%s%N >> ${saved}`;
    initRepository(path.join(folder, 'workspace'), files);
    const checkOf = (command: string) => ({ command, timeout_seconds: 60, protect: [], paths: null });
    const t = await startEngine({
      folder,
      config: { ...config, checks: { once: checkOf(once), always: checkOf(always) } },
      scenario: scenario(
        planner(step(delegate('job', { check: 'once' })), step(delegate('again', { check: 'always' })), { text: 'ok' }),
        worker('job', step(shell('echo 42 > answer.txt')), { text: 'done' }),
        worker('again', step(shell('echo 43 > answer.txt')), { text: 'done' }),
      ),
    });
    await t.run(await t.session(), 'go');
    expect(read(t, 'answer.txt')).toBe('42\n');
    expect(payloads(t, 'delegate.completed')).toMatchObject([
      { applied: true, verified: true, attempts: 1 },
      { applied: false, conflicts: ['other.txt'], attempts: 1 },
    ]);
  });

  it('is not checked where its changes conflict, and is skipped where no path of the check was changed', async () => {
    const paths = { ...test, paths: ['src/**'] };
    const t = await startInRepository(files, {
      config: { ...config, checks: { test, paths } },
      tools: [
        tool('save', {
          async execute() {
            fs.writeFileSync(path.join(t.workspace, 'answer.txt'), 'mine\n');
            return toolText('ok');
          },
        }),
      ],
      scenario: scenario(
        planner(step(checked('job')), step(delegate('skip', { check: 'paths' })), { text: 'ok' }),
        worker('job', step(shell('echo 42 > answer.txt'), call('save', {})), { text: 'done' }),
        worker('skip', step(shell('echo x > x.txt')), { text: 'done' }),
      ),
    });
    await t.run(await t.session(), 'go');
    expect(payloads(t, 'delegate.completed')).toMatchObject([
      { applied: false, conflicts: ['answer.txt'], verified: null, attempts: 0, check: 'test' },
      { applied: true, verified: null, attempts: 0, check: 'paths' },
    ]);
    expect(payloads(t, 'delegate.checked')).toEqual([]);
    expect(read(t, 'x.txt')).toBe('x\n');
  });

  // Promise 20.23: An untrusted or changed `checks.yaml` is invalid input that says how to trust it; a worker that rewrites it changes nothing for its own check; a command is no name; trust survives a restart, a changed byte ends it.
  it('finds its check in the file of the workspace only while a person trusts its bytes', async () => {
    const yaml = 'checks:\n  own: { command: "grep -qx 42 answer.txt", protect: ["test.sh"] }\n';
    const own = (task: string, check = 'own') => delegate(task, { check });
    const options = {
      config,
      scenario: scenario(
        [{ match: { role: 'planner', turn: 1, call: 1 }, respond: step(own('one'), own('two', 'sh -c true')) }],
        [{ match: { role: 'planner', turn: 2, call: 1 }, respond: step(own('three')) }],
        [{ match: { role: 'planner', turn: 3, call: 1 }, respond: step(own('four')) }],
        worker('three', step(shell('echo "own: { command: \'true\' }" > .metis/checks.yaml; echo 41 > b.txt')), {
          text: 'done',
        }),
      ),
    };
    const t = await startInRepository({ ...files, '.metis/checks.yaml': yaml }, options);
    const session = await t.session();
    await t.run(session, 'go');
    expect(payloads(t, 'delegate.started')).toEqual([]);
    const [refused = '', unnamed = ''] = await texts(t, session);
    expect(refused).toContain(
      'there is no check "own"; there are: test. .metis/checks.yaml is not trusted. Read it, then run: metis trust .metis/checks.yaml',
    );
    expect(unnamed).toContain('check: must be 1 to 64 letters, digits, "_" and "-"');
    const [listed] = await listTrust(t.engine, t.workspace, null);
    expect(listed).toMatchObject({ path: '.metis/checks.yaml', trusted: false });
    expect(listed?.widens).toEqual(['check own: runs `grep -qx 42 answer.txt` without an approval; protects test.sh']);
    await trustFile(t.engine, { workspace_path: t.workspace, path: '.metis/checks.yaml', sha256: listed!.sha256! });
    const second = await restart(t, options);
    await second.run(session, 'again');
    expect(closing(second)).toMatchObject({ failure_mode: 'check_failed', check: 'own', verified: false });
    expect([read(second, '.metis/checks.yaml'), fs.existsSync(path.join(second.workspace, 'b.txt'))]).toEqual([
      yaml,
      false,
    ]);
    fs.appendFileSync(path.join(second.workspace, '.metis/checks.yaml'), '#');
    await second.run(session, 'once more');
    expect((await texts(second, session)).at(-1)).toContain('.metis/checks.yaml has changed since it was trusted.');
  });

  // Promise 20.23: a check that forks, floods its output, hangs or wants a key gets what the shell gets.
  it('gets from its check what the shell gets: an end, an end of its output, and no credential', async () => {
    const checkOf = (command: string) => ({ command, timeout_seconds: 2, protect: [], paths: null });
    const checks = {
      hang: checkOf('echo begun; sleep 300'),
      fork: checkOf('(sleep 300; touch late) & echo forked'),
      flood: checkOf('head -c 3000000 /dev/zero | tr "\\0" x; echo end; exit 1'),
      key: checkOf('[ -z "$ANTHROPIC_API_KEY$LOOKS_HARMLESS" ] && [ -n "$TMPDIR" ] && touch "$TMPDIR/x"'),
    };
    const names = Object.keys(checks);
    const t = await startInRepository(files, {
      config: { ...config, checks },
      secrets: ['sk-secret-value'],
      commandEnv: { ANTHROPIC_API_KEY: 'sk-secret-value', LOOKS_HARMLESS: 'x sk-secret-value' },
      scenario: scenario(
        planner(...names.map((name) => step(delegate(`job ${name}`, { check: name }))), { text: 'ok' }),
        ...names.map((name) => worker(`job ${name}`, { text: 'done' })),
      ),
    });
    await t.run(await t.session(), 'go');
    expect(payloads(t, 'delegate.checked')).toMatchObject([
      { check: 'hang', passed: false, exit_code: null },
      { check: 'fork', passed: true, exit_code: 0 },
      { check: 'flood', passed: false, exit_code: 1 },
      { check: 'key', passed: true },
    ]);
    const [hang, , flood] = payloads(t, 'delegate.checked') as { tool_use_id: string }[];
    const outputOf = async (id: string) => (await t.engine.store.attempts.list(id))[0]!.output!;
    expect(await outputOf(hang!.tool_use_id)).toBe('begun\n\n[stopped after 2 s]');
    const end = await outputOf(flood!.tool_use_id);
    expect([end.length, end.endsWith('xend\n')]).toEqual([16 * 1024, true]);
    expect(leftovers(t)).toEqual([]);
  });

  it('is named by the definition of a worker', async () => {
    const yaml = 'instructions: count\ntier: fast\ntools: [shell]\ncheck: test\non_fail: [retry]\n';
    const t = await startInRepository(
      { ...files, '.metis/workers/solver.yaml': yaml },
      {
        config: { ...config, workers: { ...defaultConfig('').workers, planner_allow_workers: ['*'] } },
        scenario: scenario(
          planner(step(call('solver', { input: 'job' })), { text: 'ok' }),
          turn(1, { text: 'nothing to do' }),
          turn(2, step(shell('echo 42 > answer.txt')), { text: 'done' }),
        ),
      },
    );
    await t.run(await t.session(), 'go');
    expect(closing(t)).toMatchObject({ verified: true, attempts: 2, applied: true, isolation: 'worktree' });
  });

  // Promise 20.24: a failed check scores its turn 0 whatever the heuristics report, and a person's score replaces it.
  it('teaches what its check found, whatever the heuristics say, and less than a person', async () => {
    const t = await startInRepository(files, {
      config,
      learning: {},
      scenario: scenario(
        planner(step(checked('job', { on_fail: ['retry'] })), { text: 'ok' }),
        turn(1, { text: 'all done' }),
        turn(2, step(shell('echo 42 > answer.txt')), { text: 'done' }),
      ),
    });
    await t.run(await t.session(), 'go');
    const turns = () =>
      t.db.db
        .prepare<[], { score: number }>(
          'SELECT score FROM pattern_turns WHERE is_worker = 1 AND is_verified = 1 ORDER BY turn_id',
        )
        .all()
        .map(({ score }) => score);
    await until(() => turns().length === 2);
    expect(turns()).toEqual([0, 1]);
    const verdicts = t.events.filter(
      (e) => e.type === 'eval.completed' && (e.payload as { rubric_id: string }).rubric_id === 'check-v1',
    );
    expect(verdicts.map((e) => e.payload)).toMatchObject([
      { score: 0, confidence: 1 },
      { score: 1, confidence: 1 },
    ]);
    const [{ session_id, turn_id } = { session_id: '', turn_id: null }] = verdicts;
    await scoreTurn(t.engine, session_id as SessionId, turn_id as TurnId, { score: 0.5, comment: null });
    await until(() => turns()[0] === 0.5);
  });

  // Promise 20.24: `/analytics/verified` equals an independent sum over events to the last digit.
  it('is reported by the cost of its verified results, as the events add up', async () => {
    const always = { command: 'false', timeout_seconds: 60, protect: [], paths: null };
    const t = await startInRepository(files, {
      config: { ...config, checks: { test, always, docs: { ...test, paths: ['docs/**'] } } },
      scenario: scenario(
        planner(
          step(checked('one', { on_fail: ['retry'] })),
          step(checked('two'), delegate('three', { check: 'always', on_fail: ['tier:balanced'] })),
          step(delegate('four', { check: 'docs' }), delegate('five')),
          { text: 'ok' },
        ),
        [{ match: { role: 'worker', user_contains: 'one', turn: 1 }, respond: answerWith(700) }],
        [
          {
            match: { role: 'worker', user_contains: 'one', turn: 2, call: 1 },
            respond: step(shell('echo 42 > answer.txt')),
          },
        ],
        [{ match: { role: 'worker', user_contains: 'one', turn: 2, call: 2 }, respond: answerWith(11) }],
        ...['two', 'three', 'four', 'five'].map((task, n) => [
          { match: { role: 'worker', user_contains: task }, times: 9, respond: answerWith(100 + n) },
        ]),
      ),
    });
    await t.run(await t.session(), 'go');
    const ends = t.events.filter((e) => e.type === 'delegate.completed' || e.type === 'delegate.failed');
    const named = ends.map(
      (e) => e.payload as WorkerChanges & { readonly worker_session_id: string; readonly model: string },
    );
    const run = named.filter(({ check, verified }) => check !== null && verified !== null);
    const costOf = (ids: readonly string[]) =>
      t.events
        .filter((e) => e.type === 'llm.call_completed' && ids.includes(e.session_id))
        .reduce((sum, e) => (sum + toPusd((e.payload as { cost_usd: string }).cost_usd)) as Pusd, 0n as Pusd);
    const analytics = createAnalytics(t.db.reader);
    const window = { from: 0, to: Date.now() + 60_000 };
    for (const group_by of ['check', 'model', 'tier', 'worker_name'] as const) {
      const { groups: rows } = await analytics.verified({ window, group_by }, t.engine.prices);
      expect(rows.reduce((sum, row) => sum + row.delegations, 0)).toBe(4);
      expect(rows.reduce((sum, row) => sum + toPusd(row.cost_usd), 0n)).toBe(
        costOf(run.map((one) => one.worker_session_id)),
      );
      if (group_by !== 'check' && group_by !== 'model') continue;
      for (const row of rows) {
        const own = run.filter((one) => one[group_by] === row.key);
        const cost = costOf(own.map((one) => one.worker_session_id));
        const passed = own.filter((one) => one.verified).length;
        expect(row).toMatchObject({
          checked: own.length,
          passed,
          failed: own.length - passed,
          passed_first: own.filter((one) => one.verified && one.attempts === 1).length,
          cost_usd: fromPusd(cost),
          cost_per_verified_usd: passed === 0 ? null : fromPusd((cost / BigInt(passed)) as Pusd),
        });
      }
    }
    const { groups: rows } = await analytics.verified({ window, group_by: 'check' }, t.engine.prices);
    expect(rows.map(({ key, delegations, checked: ran }) => [key, delegations, ran])).toEqual([
      ['always', 1, 1],
      ['docs', 1, 0],
      ['test', 2, 2],
    ]);
    // The model of the planner is more expensive than those of the workers.
    expect(toPusd(rows[2]!.planner_cost_usd!)).toBeGreaterThan(toPusd(rows[2]!.cost_usd));
  });

  it('needs a worktree, a model for each rung, and a check for rungs', async () => {
    const t = await startInRepository(files, {
      config,
      scenario: scenario(
        planner(
          step(
            checked('one', { isolation: 'shared' }),
            checked('two', { on_fail: ['effort:max'] }),
            delegate('three', { on_fail: ['retry'] }),
            checked('four', { on_fail: ['again'] }),
          ),
          { text: 'ok' },
        ),
      ),
    });
    const session = await t.session();
    await t.run(session, 'go');
    const [shared, rung, none, unknown] = await texts(t, session);
    expect(shared).toContain('check: needs isolation "worktree"');
    expect(rung).toContain('on_fail[0]: ');
    expect(none).toContain('on_fail: needs a check');
    expect(unknown).toContain('on_fail[0]: ');
    expect(payloads(t, 'delegate.started')).toEqual([]);
  });
});

describe('a process that dies', () => {
  const rules = scenario(
    planner(step(checked('job', { on_fail: ['retry'] })), { text: 'ok' }),
    turn(1, step(shell('echo 1 > answer.txt')), { text: 'done' }),
    turn(2, step(shell('echo 42 > answer.txt')), { text: 'done' }),
  );

  it('within a check runs it again after its restart, kills what is left of it, and pays nothing twice', async () => {
    const folder = tempFolder();
    initRepository(path.join(folder, 'workspace'), files);
    const [begun, pid] = [path.join(folder, 'begun'), path.join(folder, 'pid')];
    const command = `[ -e ${begun} ] && exec sh test.sh; echo $$ > ${pid}; touch ${begun}; sleep 300`;
    const options = { folder, config: { ...config, checks: { test: { ...test, command } } }, scenario: rules };
    const first = await startEngine(options);
    const session = await first.session();
    const turnId = await first.submit(session, 'go');
    await until(() => fs.existsSync(begun));
    const left = Number(fs.readFileSync(pid, 'utf8'));
    const paid = first.events.filter((e) => e.type === 'llm.call_completed').length;
    const second = await restart(first, options);
    await second.ended(turnId);
    await until(() => !isAlive(left));
    expect(closing(second)).toMatchObject({ verified: true, attempts: 2, applied: true });
    expect(read(second, 'answer.txt')).toBe('42\n');
    expect(payloads(second, 'delegate.checked')).toMatchObject([
      { attempt: 1, passed: false },
      { attempt: 2, passed: true },
    ]);
    // The rung has two calls, and the planner one more.
    const after = second.events.filter((e) => e.type === 'llm.call_completed').length;
    expect([paid, after]).toEqual([3, 3]);
    expect(leftovers(second)).toEqual([]);
  });

  it('between two rungs goes on with the second', async () => {
    const options = { config, scenario: rules };
    const first = await startInRepository(files, options);
    const session = await first.session();
    at(
      first,
      (e) => e.type === 'delegate.checked',
      () => first.abandon(),
    );
    const turnId = await first.submit(session, 'go');
    await first.event('delegate.checked');
    const second = await restart(first, options);
    await second.ended(turnId);
    expect(closing(second)).toMatchObject({ verified: true, attempts: 2, applied: true });
    expect(payloads(second, 'delegate.checked')).toMatchObject([{ attempt: 2, passed: true }]);
    expect(second.events.filter((e) => e.type === 'llm.call_completed')).toHaveLength(3);
  });

  it('between a check that passed and the last file writes what passed', async () => {
    const options = {
      config,
      scenario: scenario(
        planner(step(checked('job')), { text: 'ok' }),
        turn(1, step(shell('echo 42 > answer.txt')), { text: 'done' }),
      ),
    };
    const first = await startInRepository(files, options);
    const session = await first.session();
    const { commit } = first.engine.journal;
    first.engine.journal.commit = async (batch) => {
      const done = await commit(batch);
      const isMerged = (batch.writes ?? []).some((w) => w.kind === 'worktree.put' && w.worktree.merged_tree !== null);
      if (!isMerged) return done;
      first.abandon();
      throw new Error('the process is gone');
    };
    const turnId = await first.submit(session, 'go');
    await until(() => !isOpen(first));
    const second = await restart(first, options);
    await second.ended(turnId);
    expect(read(second, 'answer.txt')).toBe('42\n');
    expect(payloads(second, 'delegate.checked')).toMatchObject([{ attempt: 1, passed: true }]);
    expect(closing(second)).toMatchObject({ verified: true, attempts: 1, applied: true });
  });
});

function isOpen(t: TestEngine): boolean {
  return t.db.db.open;
}

function isAlive(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch {
    return false;
  }
}
