// `metis run` as a person and as a script start it: one turn, its answer, its approvals, its exit code.
import fs from 'node:fs';
import path from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { createMetisClient, type LoggedEvent } from '#client/client.ts';
import { isOwned } from '#store/sqlite/connection/database-file.ts';
import { runHere, type StartedHere, startHere } from './here.ts';
import {
  address,
  HAS_TERMINAL,
  type OnTerminal,
  run,
  type Started,
  start,
  startOnTerminal,
  temporaryHome,
  visible,
} from './metis.ts';

let home: ReturnType<typeof temporaryHome>;
const running: { stop(): unknown }[] = [];
const data = () => path.join(home.path, '.metis');

beforeEach(() => {
  home = temporaryHome();
  fs.mkdirSync(data());
});
afterEach(async () => {
  await Promise.all(running.splice(0).map((process) => process.stop()));
  home.remove();
});

/** Models of a registry of one's own that answer by these rules; no other port is asked than a free one. */
function models(...rules: object[]): void {
  const capabilities = { max_context_tokens: 200_000, max_output_tokens: 32_000, supports_structured_output: true };
  const write = (name: string, content: object) => fs.writeFileSync(path.join(data(), name), JSON.stringify(content));
  write('scenario.yaml', { version: 1, strict: false, defaults: { delay_ms: 0, chunk_delay_ms: 0 }, rules });
  write('registry.yaml', {
    adapters: { scripted: { type: 'scripted', scenario: 'scenario.yaml' } },
    models: Object.fromEntries(
      ['deep', 'balanced', 'fast'].map((tier) => [`scripted:${tier}`, { tier, capabilities }]),
    ),
  });
  // Port 1 answers nobody.
  write('server.yaml', { server: { port: 1 } });
}
const usage = { input_tokens: 1000, output_tokens: 50 };
const WRITES = [
  {
    match: { call: 1 },
    respond: { tool_calls: [{ name: 'write_file', input: { path: 'note.txt', content: 'one\ntwo\n' } }], usage },
  },
  { match: { call: 2 }, respond: { text: 'The tool said: {{last_tool_result}}', usage } },
];
const written = () => fs.existsSync(path.join(home.path, 'note.txt'));
const once = (...args: string[]) => runHere(['run', ...args], { home: home.path });
const onceAsProcess = (...args: string[]) => run(['run', ...args], { home: home.path });
function atTerminal(...args: string[]): OnTerminal {
  const started = startOnTerminal(['run', ...args], { home: home.path });
  running.push(started);
  return started;
}
async function serve(...args: string[]): Promise<{ url: string; server: StartedHere }> {
  const words = ['serve', '--port', '0', '--set', 'shutdown.drain_seconds=0', ...args];
  const server = startHere(words, { home: home.path });
  running.push({ stop: () => server.stop() });
  return { url: await address(server), server };
}
/** For a test that kills or halts it. */
async function serveAsProcess(): Promise<{ url: string; server: Started }> {
  const server = start(['serve', '--port', '0'], { home: home.path });
  running.push({ stop: () => server.stop('SIGKILL') });
  return { url: await address(server), server };
}
/** All events of all sessions in the data folder, as a server tells them. */
async function stored(): Promise<LoggedEvent[]> {
  const { url } = await serve();
  const client = createMetisClient({ baseUrl: url });
  const { sessions } = await client.listSessions();
  const lists = await Promise.all(
    sessions.map(({ id }) => client.listEvents(id, { include_worker_sessions: true, limit: 1000 })),
  );
  return lists.flatMap(({ events }) => events);
}
const lines = (text: string) => text.trimEnd().split('\n');

describe('where no server answers', () => {
  // Promise 17.9: with no server running it starts one and leaves none behind.
  it('one runs for the task alone, on the same data folder, says so in a line and leaves none behind', async () => {
    models({ match: {}, respond: { text: 'Forty-two.', usage } });
    const { code, stdout, stderr } = await onceAsProcess('How many?');
    expect(stdout).toBe('Forty-two.\n');
    expect(stderr).toContain(
      `metis: no server answers at http://127.0.0.1:1, so one runs for this task alone, data in ${data()}\n`,
    );
    expect(stderr).toMatch(/^planner +done$/m);
    expect(code).toBe(0);
    expect(isOwned(path.join(data(), 'metis.db'))).toBe(false);
    expect((await stored()).map(({ type }) => type)).toContain('turn.completed');
  });

  it('with a data folder that was named, it is that folder which no server answers for', async () => {
    models({ match: {}, respond: { text: 'Forty-two.', usage } });
    const { url } = await serve();
    const other = path.join(home.path, 'other');
    const settings = ['--config', path.join(data(), 'server.yaml'), '--set', `server.port=${new URL(url).port}`];
    expect((await once('How many?', '--data', other, ...settings)).stderr).toContain(
      `metis: no server answers for ${other}, so one runs for this task alone`,
    );
  });

  it('an answer reaches a pipe to the byte, and a terminal without what it would act on', async () => {
    const hostile = 'one\n\ttwo\u001b]52;c;cm0=\u0007 \u009b2J\u202ethree';
    models({ match: {}, respond: { text: hostile, usage } });
    expect((await onceAsProcess('How many?')).stdout).toBe(`${hostile}\n`);
    if (!HAS_TERMINAL) return;
    const terminal = atTerminal('How many?');
    expect(await terminal.ended).toBe(0);
    expect(terminal.output()).toContain('one\r\n\ttwo ]52;c;cm0=   2J three\r\n');
    expect(terminal.output()).not.toContain('\u001b]');
    expect(terminal.output()).not.toMatch(/[\u0080-\u009f\u202e]/);
  });

  it('the one for the task leaves the open turns of others alone', async () => {
    models(
      { match: { user_contains: 'Never' }, respond: { hang: true } },
      { match: {}, respond: { text: 'Forty-two.', usage } },
    );
    const { url, server } = await serveAsProcess();
    const client = createMetisClient({ baseUrl: url });
    const session = await client.createSession({ workspace_path: home.path });
    const { turn_id } = await client.submitTurn(session.id, { content: 'Never end.' });
    await server.stop('SIGKILL');
    expect(await once('How many?')).toMatchObject({ code: 0, stdout: 'Forty-two.\n' });
    const later = await serve('--set', 'recovery.on_start=hold');
    const again = createMetisClient({ baseUrl: later.url });
    expect(await again.getTurn(session.id, turn_id)).toMatchObject({ status: 'interrupted' });
    const { events } = await again.listEvents(session.id);
    expect(events.map(({ type }) => type)).not.toContain('turn.resumed');
  });

  it('none is started in place of one that was named', async () => {
    models({ match: {}, respond: { text: 'Forty-two.' } });
    const { code, stdout, stderr } = await once('How many?', '--server', '127.0.0.1:1');
    expect([code, stdout]).toEqual([1, '']);
    expect(stderr).toBe('metis: no server answers at http://127.0.0.1:1; metis serve starts one\n');
    expect(fs.existsSync(path.join(data(), 'metis.db'))).toBe(false);
  });

  it('a server that holds the data folder elsewhere is found by what the folder says, and not worked around where it says nothing', async () => {
    const answer = { match: {}, respond: { text: 'Forty-two.' } };
    models(answer, answer);
    const { url } = await serve();
    const found = await once('How many?');
    expect(found).toMatchObject({ code: 0, stdout: 'Forty-two.\n' });
    expect(found.stderr).not.toContain('runs for this task alone');
    expect(await runHere(['prune', '--days', '30'], { home: home.path })).toMatchObject({ code: 0, stderr: '' });
    fs.rmSync(path.join(data(), 'server.json'));
    const refused = await once('How many?');
    expect([refused.code, refused.stdout]).toEqual([1, '']);
    expect(refused.stderr).toMatch(/a server holds .*metis\.db, but nothing answers at .*:1; name its address/);
    expect(await once('How many?', '--server', url)).toMatchObject({ code: 0, stdout: 'Forty-two.\n' });
  });
});

it('a message that is refused leaves no session behind', async () => {
  models({ match: {}, respond: { text: 'Forty-two.', usage } });
  const file = path.join(data(), 'registry.yaml');
  const registry = JSON.parse(fs.readFileSync(file, 'utf8'));
  registry.adapters.anthropic = { type: 'anthropic' };
  registry.models['anthropic:claude-sonnet-5'] = { ...registry.models['scripted:deep'], aliases: ['sonnet'] };
  fs.writeFileSync(file, JSON.stringify(registry));
  const { url } = await serve();
  const { code, stderr } = await once('How many?', '--model', 'sonnet', '--server', url);
  expect([code, stderr]).toEqual([1, expect.stringContaining('anthropic:claude-sonnet-5')]);
  expect((await createMetisClient({ baseUrl: url }).listSessions()).sessions).toEqual([]);
});

describe('--worker', () => {
  const worker = (name: string, text: string) => {
    fs.mkdirSync(path.join(home.path, 'workers'), { recursive: true });
    fs.writeFileSync(path.join(home.path, 'workers', name), text);
  };

  it('runs the task as that worker, and prints its answer', async () => {
    models({ match: { user_contains: 'How many?' }, respond: { text: 'Forty-two.', usage } });
    worker('counter.yaml', 'instructions: You count.\ntier: fast');
    expect(await once('How many?', '--worker', 'counter')).toMatchObject({ code: 0, stdout: 'Forty-two.\n' });
    const [created] = await stored();
    expect(created!.payload).toMatchObject({ worker_name: 'counter', is_worker: false });
  });

  it('that is not there or not valid is a mistake of usage, and says what is wrong', async () => {
    models({ match: {}, respond: { text: 'Forty-two.', usage } });
    worker('broken.yaml', 'instructions: x\nmodle: y');
    const { url } = await serve();
    const missing = await once('How many?', '--worker', 'nobody', '--server', url);
    expect([missing.code, missing.stderr]).toEqual([2, expect.stringMatching(/^metis: no worker named nobody/)]);
    const broken = await once('How many?', '--worker', 'broken', '--server', url);
    expect([broken.code, broken.stdout]).toEqual([2, '']);
    expect(broken.stderr).toMatch(/^metis: worker\.modle: /);
  });
});

it('a bare name of a model is taken in any case', async () => {
  models({ match: {}, respond: { text: '{{model}}', usage } });
  expect(await once('Which?', '--model', 'Balanced')).toMatchObject({ code: 0, stdout: 'scripted:balanced\n' });
});

it('says that the routing file of the workspace is broken, and runs', async () => {
  models({ match: {}, respond: { text: 'Forty-two.', usage } });
  fs.mkdirSync(path.join(home.path, 'project/.metis'), { recursive: true });
  fs.writeFileSync(path.join(home.path, 'project/.metis/routing.yaml'), 'default: nothing-like-it\n');
  const { code, stdout, stderr } = await once('How many?', '--workspace', path.join(home.path, 'project'));
  expect([code, stdout]).toEqual([0, 'Forty-two.\n']);
  expect(stderr).toMatch(
    /^metis: .*routing\.yaml is invalid, so none of its rules apply: .*default: "nothing-like-it" is neither/m,
  );
});

describe('metis models', () => {
  it('lists the models that can be used, with tier, price and what is simulated', async () => {
    models({ match: {}, respond: { text: 'x' } });
    const { url } = await serve();
    const { code, stdout } = await runHere(['models', '--server', url], { home: home.path });
    expect(code).toBe(0);
    expect(stdout).toMatch(/^scripted:fast +fast +\$1 +\$5 +simulated$/m);
    expect(stdout).toMatch(/^Simulated models answer from a script; their prices are examples\.$/m);
  });
});

describe('--json', () => {
  it('prints every stored event of the tree on a line, and nothing else on stdout', async () => {
    models(
      {
        match: { role: 'planner', call: 1 },
        respond: { tool_calls: [{ name: 'delegate', input: { tier: 'fast', task: 'Say yes.' } }], usage },
      },
      { match: { role: 'worker' }, respond: { text: 'Yes.', usage } },
      { match: { role: 'planner', call: 2 }, respond: { text: 'It said yes.', usage } },
    );
    const { code, stdout, stderr } = await once('Ask somebody.', '--json');
    expect(code).toBe(0);
    const printed = lines(stdout).map((line) => JSON.parse(line) as LoggedEvent);
    // What is learned of the turn comes behind its end.
    const all = await stored();
    const end = all.findIndex(({ type, actor }) => type === 'turn.completed' && actor !== 'worker');
    expect(printed).toEqual(all.slice(0, end + 1));
    expect(printed[0]!.type).toBe('session.created');
    expect(printed.at(-1)!.type).toBe('turn.completed');
    expect(printed.map(({ type }) => type)).toContain('delegate.completed');
    expect(stderr).toMatch(/^sess_\w+: \$0\.\d+, \$0\.\d+ of it by 1 worker, simulated, at example prices$/m);
  });
});

describe('the delegations of one message above a limit', () => {
  const delegates = ['count a', 'count b'].map((task) => ({ name: 'delegate', input: { tier: 'fast', task } }));
  const RULES = [
    { match: { role: 'planner', call: 1 }, respond: { tool_calls: delegates, usage } },
    { match: { role: 'worker' }, times: 'inf', respond: { text: 'four', usage } },
    { match: { role: 'planner', call: 2 }, respond: { text: 'The tool said: {{last_tool_result}}', usage } },
  ];
  const LIMIT = ['--set', 'delegation.confirm_above_workers=1'];
  const started = async () => (await stored()).filter(({ type }) => type === 'delegate.started').length;

  // Promise 21.9: `metis run` without a terminal follows the approval mode: nothing starts, and it names what was denied, with exit code 5.
  it('are denied where nobody is at a terminal, in one sentence, and none starts', async () => {
    models(...RULES);
    const { code, stdout, stderr } = await once('Count them.', ...LIMIT);
    expect(stdout).toBe(
      'The tool said: The user rejected the delegations of this message; none started. Reason: strict mode: not pre-approved\n',
    );
    expect(code).toBe(5);
    const denied = stderr.split('\n').filter((line) => line.startsWith('metis: denied'));
    expect(denied).toEqual([
      expect.stringMatching(
        /^metis: denied, as it needs approval and there is no terminal to ask at: 2 delegations to scripted:fast, together up to \$0\.\d+ \(planner\)$/,
      ),
    ]);
    expect(stderr).toMatch(
      /^metis: to allow it, .*--approve \(.*\), or raise delegation\.confirm_above_usd or delegation\.confirm_above_workers$/m,
    );
    expect(await started()).toBe(0);
  });

  // Promise 21.9: `metis run --approve` starts them all.
  it('start with --approve', async () => {
    models(...RULES);
    const { code, stdout, stderr } = await once('Count them.', '--approve', ...LIMIT);
    expect([code, stdout], stderr).toEqual([0, 'The tool said: four\n']);
    expect(await started()).toBe(2);
  });

  it.skipIf(!HAS_TERMINAL)('are a table at a terminal, where the first one alone is started', async () => {
    models(...RULES);
    const terminal = atTerminal('Count them.', ...LIMIT);
    await terminal.seen(/start them\?/);
    const shown = visible(terminal.output());
    expect(shown).toContain('planner asks for approval of 2 delegations before the first starts');
    expect(shown).toMatch(/│ 1 {2}fast {2}scripted:fast {2}first call at most \$0\.\d+/);
    expect(shown).toMatch(/│ together up to \$0\.\d+/);
    terminal.type('first 3\r');
    await terminal.seen(/must be at most 2[\s\S]*start them\?/);
    terminal.type('first 1\r');
    expect(await terminal.ended).toBe(0);
    expect(visible(terminal.output())).toContain('The user approved only the first 1 of 2 delegations');
    expect(await started()).toBe(1);
  });
});

describe('what needs approval', () => {
  // Promise 17.9: without a terminal a write is denied and nothing hangs.
  it('is denied where nobody is at a terminal, and nothing hangs', async () => {
    models(...WRITES);
    const { code, stdout, stderr } = await onceAsProcess('Write a note.');
    expect(stdout).toBe("The tool said: Strict mode: tool 'write_file' not pre-approved\n");
    expect([code, written()]).toEqual([5, false]);
    expect(stderr).toMatch(
      /^metis: denied, as it needs approval and there is no terminal to ask at: write_file \{.*note\.txt.*\} \(planner\)$/m,
    );
    expect(stderr).toMatch(/^planner +write_file needs approval and there is no terminal to ask at$/m);
    expect(stderr).toMatch(
      /^metis: to allow it, .*--approve \(.*\), or add write_file to always_allow in \.metis\/trust/m,
    );
    const resolved = (await stored()).filter((event) => event.type === 'tool.confirmation_resolved');
    expect(resolved.map(({ payload }) => payload)).toMatchObject([{ decision: 'reject', resolved_by: 'policy' }]);
  });

  // Promise 17.9: without a terminal a worker's denied call is named, with exit code 5.
  it('is named where a worker asked for it, and its exit code is 5 too', async () => {
    models(
      {
        match: { role: 'planner', call: 1 },
        respond: { tool_calls: [{ name: 'delegate', input: { tier: 'fast', task: 'Write.' } }], usage },
      },
      { ...WRITES[0], match: { role: 'worker', call: 1 } },
      { match: { role: 'worker' }, respond: { text: 'It was denied.', usage } },
      { match: { role: 'planner', call: 2 }, respond: { text: 'Nothing was written.', usage } },
    );
    const { code, stdout, stderr } = await once('Write a note.');
    expect([code, stdout]).toEqual([5, 'Nothing was written.\n']);
    expect(stderr).toMatch(/^metis: denied, .*: write_file .* \(worker 1\)$/m);
  });

  it('passes with --approve, unless the configuration forbids it', async () => {
    models(...WRITES);
    fs.writeFileSync(path.join(data(), 'server.yaml'), 'server: { port: 1 }\nworkers: { allow_approve_all: false }\n');
    expect(await once('Write a note.', '--approve')).toMatchObject({
      code: 2,
      stderr: expect.stringContaining('needs workers.allow_approve_all: true'),
    });
    models(...WRITES);
    expect(await once('Write a note.', '--approve')).toMatchObject({ code: 0 });
    expect(written()).toBe(true);
  });

  describe.runIf(HAS_TERMINAL)('is asked at the terminal', () => {
    // Promise 17.9: on a terminal the answer decides: yes lets a write run.
    it('with the exact input and the deadline; yes lets it run', async () => {
      models(...WRITES);
      const terminal = atTerminal('Write a note.');
      await terminal.seen(/approve\?/);
      const asked = visible(terminal.output());
      expect(asked).toMatch(/planner asks for approval: write_file \(write\)/);
      expect(asked).toMatch(/│ path: note\.txt\r?\n +│ content:\r?\n +│ {3}one\r?\n +│ {3}two\r?\n/);
      expect(asked).toMatch(/denied in \d+[sm], at \d\d:\d\d:\d\d UTC/);
      terminal.type('perhaps\r');
      await terminal.seen(/perhaps[\s\S]*approve\?/);
      expect(written()).toBe(false);
      terminal.type('yes\r');
      expect(await terminal.ended).toBe(0);
      expect(fs.readFileSync(path.join(home.path, 'note.txt'), 'utf8')).toBe('one\ntwo\n');
      expect(visible(terminal.output())).toMatch(/The tool said: Wrote 8 bytes/);
      const widths = visible(terminal.output())
        .split(/[\r\n]+/)
        .map((line) => line.length);
      expect(Math.max(...widths)).toBeLessThanOrEqual(80);
    });

    // Promise 17.9: on a terminal the answer decides: no denies it.
    it('no denies it, and the model reads why', async () => {
      models(...WRITES);
      const terminal = atTerminal('Write a note.');
      await terminal.seen(/approve\?/);
      terminal.type('no, notes belong elsewhere\r');
      expect(await terminal.ended).toBe(0);
      expect(visible(terminal.output())).toMatch(/User denied this operation\..*notes belong elsewhere/s);
      expect(written()).toBe(false);
    });

    it('what was typed before the question stood is no answer to it', async () => {
      models({ ...WRITES[0], respond: { ...WRITES[0]!.respond, delay_ms: 400 } }, WRITES[1]!);
      const terminal = atTerminal('Write a note.');
      await terminal.seen(/planner/);
      terminal.type('yes\r');
      await terminal.seen(/approve\?/);
      terminal.type('no\r');
      expect(await terminal.ended).toBe(0);
      expect(written()).toBe(false);
    });

    it('an answer given elsewhere takes the question back', async () => {
      models(...WRITES);
      const { url } = await serve();
      const client = createMetisClient({ baseUrl: url });
      const terminal = atTerminal('Write a note.', '--server', url);
      await terminal.seen(/approve\?/);
      const { confirmations } = await client.listConfirmations();
      await client.answerConfirmation(confirmations[0]!.confirmation_request_id, { decision: 'approve' });
      expect(await terminal.ended).toBe(0);
      expect(visible(terminal.output())).toContain('no answer is needed any more');
      expect(written()).toBe(true);
    });
  });
});

it.runIf(HAS_TERMINAL)('a line below the tree says what it waits for', async () => {
  models({ match: {}, respond: { hang: true } });
  const terminal = atTerminal('Never end.');
  await terminal.seen(/waits for the model \(planner, [1-9]\d*s\)/);
  terminal.type('\x03');
  expect(await terminal.ended).toBe(3);
});

it.runIf(HAS_TERMINAL)('Ctrl-\\ concludes the turn: its model answers with what it has, exit code 0', async () => {
  const sleeps = { tool_calls: [{ name: 'shell', input: { command: 'sleep 2' } }] };
  models({ match: { call: 1 }, respond: sleeps }, { match: { call: 2 }, respond: { text: 'As far as I got.' } });
  const terminal = atTerminal('Never end.', '--approve');
  await terminal.seen(/shell/);
  terminal.type('\x1c');
  expect(await terminal.ended).toBe(0);
  expect(visible(terminal.output())).toMatch(/concluding: no further tool starts/);
  expect(visible(terminal.output())).toContain('As far as I got.');
  const ends = (await stored()).filter(({ type }) => type === 'turn.completed');
  expect(ends.map(({ payload }) => payload)).toMatchObject([{ concluded: true }]);
});

describe.runIf(HAS_TERMINAL)('Ctrl-C', () => {
  const CTRL_C = '\x03';
  const ends = (events: readonly LoggedEvent[]) =>
    events.map(({ type }) => type).filter((type) => /^turn\.(completed|failed|cancelled)$/.test(type));

  // Promise 17.9: Ctrl-C ends with 3 and one turn.cancelled.
  it('cancels the turn: exit code 3, and its one end is turn.cancelled', async () => {
    models({ match: {}, respond: { hang: true } });
    const terminal = atTerminal('Never end.');
    await terminal.seen(/thinking/);
    terminal.type(CTRL_C);
    expect(await terminal.ended).toBe(3);
    expect(visible(terminal.output())).toMatch(/cancelling; Ctrl-C once more leaves at once/);
    expect(ends(await stored())).toEqual(['turn.cancelled']);
  });

  it('cancels while a question stands, too', async () => {
    models(...WRITES);
    const terminal = atTerminal('Write a note.');
    await terminal.seen(/approve\?/);
    terminal.type(CTRL_C);
    expect(await terminal.ended).toBe(3);
    expect(ends(await stored())).toEqual(['turn.cancelled']);
    expect(written()).toBe(false);
  });

  it('a second one leaves at once and gives the cursor back', async () => {
    models({ match: {}, respond: { hang: true } });
    const { url, server } = await serveAsProcess();
    const terminal = atTerminal('Never end.', '--server', url);
    await terminal.seen(/thinking/);
    // A server that does not move cannot cancel either.
    server.child.kill('SIGSTOP');
    terminal.type(CTRL_C);
    await terminal.seen(/once more leaves/);
    terminal.type(CTRL_C);
    expect(await terminal.ended).toBe(3);
    expect(terminal.output().lastIndexOf('\x1b[?25h')).toBeGreaterThan(terminal.output().lastIndexOf('\x1b[?25l'));
    server.child.kill('SIGCONT');
  });
});

describe('exit codes', () => {
  // Promise 17.3: a budget too small ends with 4 and says what was spent and what the limit is.
  it('4 with what was spent and what the limit is, where the budget does not do', async () => {
    const respond = {
      tool_calls: [{ name: 'list_files', input: {} }],
      usage: { input_tokens: 10_000, output_tokens: 100 },
    };
    models({ match: {}, times: 'inf', respond });
    const { url } = await serve();
    const first = await once('How many?', '--server', url, '--budget', '0.001');
    expect(first.code).toBe(4);
    expect(first.stderr).toMatch(
      /^metis: the budget is too small: \$0 of \$0\.001 spent.*may cost \$(0\.\d+); --budget \1 would allow it$/m,
    );
    const later = await once('How many?', '--server', url, '--budget', '0.2');
    expect(later.code).toBe(4);
    expect(later.stderr).toMatch(/^metis: .*\$0\.[01]\d* of \$0\.2 spent/m);
  });

  it('1 with the reason, where the turn fails', async () => {
    models({ match: {}, respond: { error: { error_class: 'auth', error_detail: 'the key is void' } } });
    const { url } = await serve();
    const { code, stdout, stderr } = await once('How many?', '--server', url);
    expect([code, stdout]).toEqual([1, '']);
    expect(stderr).toMatch(/^metis: the turn failed: .+$/m);
    expect(stderr).toMatch(/^metis: scripted rejected the key .*restart the server.*metis doctor --online$/m);
    // The list of sessions names it too.
    const failed = await runHere(['sessions', '--failed', '--server', url], { home: home.path });
    expect(failed.stdout).toMatch(/^sess_\w+ +How many\? +failed /m);
  });

  it.each([
    [['--nope', 'x'], /unknown option '--nope'/],
    [[], /missing required argument 'task'/],
    [[' '], /must not be blank/],
    [['x', '--budget', 'much'], /must be an amount in US dollars above 0/],
    [['x', '--budget', '0'], /must be an amount in US dollars above 0/],
    [['x', '--workspace', '/nowhere/at/all'], /^metis: --workspace is not an existing directory: \/nowhere\/at\/all$/m],
    [['x', '--model', 'none:such'], /^metis: "none:such" is neither .* \(metis models lists/m],
    [['x', '--model', 'blanced'], /did you mean scripted:balanced\?/],
  ])('2 for %j', async (args, message) => {
    models({ match: {}, respond: { text: 'Forty-two.' } });
    const { code, stdout, stderr } = await once(...args);
    expect(stderr).toMatch(message);
    expect([code, stdout]).toEqual([2, '']);
  });
});

// Promise 20.19: `metis run` exits after the background workers of its turn.
it('ends when the background workers of its turn have ended and been read', async () => {
  const job = (task: string) => ({ name: 'delegate', input: { tier: 'fast', task, background: true } });
  models(
    {
      match: { role: 'planner', call: 1 },
      respond: { tool_calls: [job('look at one'), job('look at two')], usage },
    },
    { match: { role: 'worker' }, times: 'inf', respond: { text: 'seen', delay_ms: 400, usage } },
    { match: { role: 'planner', user_contains: 'completed]' }, times: 'inf', respond: { text: 'all seen', usage } },
    { match: { role: 'planner' }, times: 'inf', respond: { text: 'under way', usage } },
  );
  const { code, stdout, stderr } = await once('go', '--model', 'scripted:deep');
  expect([code, stdout.trim().endsWith('all seen')], stdout).toEqual([0, true]);
  for (const worker of ['worker 1', 'worker 2']) expect(stderr).toContain(`planner   reads the result of ${worker}\n`);
});
