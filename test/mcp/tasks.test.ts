// Delegations as tasks, by the official client over both roads and both protocols (20 §9).
import fs from 'node:fs';
import path from 'node:path';
import { beforeAll, describe, expect, test } from 'vitest';
import { atSuiteEnd, doorHome, mcpOver, mcpOverHttp, ROADS, serveIn, usage } from '../support/doors.ts';
import { ask, askRaw, startDoor, TASKS } from '../support/mcp-tasks.ts';
import { until } from '../support/until.ts';

const answers = (task: string, ...responses: object[]) =>
  responses.map((respond, i) => ({
    match: { role: 'worker', user_contains: task, call: i + 1 },
    times: 'inf',
    respond,
  }));
const RULES = [
  {
    match: { role: 'planner', call: 1 },
    times: 'inf',
    respond: { tool_calls: [{ name: 'delegate', input: { tier: 'fast', task: 'at once' } }], usage },
  },
  { match: { role: 'planner', call: 2 }, times: 'inf', respond: { text: 'delegated', usage } },
  ...answers('slowly', { text: 'at last', usage, delay_ms: 3000 }),
  ...answers('at once', { text: 'done', usage }),
  ...answers('for ever', { hang: true }),
  ...answers('break', { error: { error_class: 'invalid_request' } }),
  ...answers(
    'write the note',
    { tool_calls: [{ name: 'write_file', input: { path: 'note.txt', content: 'hi' } }], usage },
    { text: 'The tool said: {{last_tool_result}}', usage },
  ),
];
const EXTENSION = { extensions: { [TASKS]: {} } };
const FORMS = { elicitation: { form: {} } };
const delegation = (task: string) => ({ name: 'delegate', arguments: { tier: 'fast', task } });
const RESULT = { success: true, output: 'at last' };

describe.each(ROADS)('over %s', (road) => {
  // Promise 20.21: a task of 2025-11-25 outlives its connection and a killed server; its handle brings the result.
  test('2025-11-25: started, left, the server killed, and its result read by another connection', async () => {
    const home = doorHome(RULES);
    const first = await startDoor(road, home);
    const { task } = await ask(first.client, 'tools/call', { ...delegation('slowly'), task: { ttl: 60_000 } });
    expect(task).toMatchObject({ taskId: expect.stringMatching(/^sess_/), status: 'working', ttl: null });
    expect(Date.parse(task.createdAt)).toBeGreaterThan(0);
    expect(task.pollInterval).toBeGreaterThan(0);
    const { taskId } = task;
    if (road === 'http') await first.client.close();
    await first.kill();

    const second = await startDoor(road, home);
    expect((await ask(second.client, 'tasks/get', { taskId })).taskId).toBe(taskId);
    expect((await ask(second.client, 'tasks/list')).tasks).toMatchObject([{ taskId }]);
    const result = await ask(second.client, 'tasks/result', { taskId });
    expect(result).toMatchObject({
      structuredContent: { ...RESULT, worker_session_id: taskId },
      _meta: { 'io.modelcontextprotocol/related-task': { taskId } },
    });
    expect(await ask(second.client, 'tasks/get', { taskId })).toMatchObject({ status: 'completed' });
    // Read as often as it is asked for, and always the same.
    expect(await ask(second.client, 'tasks/result', { taskId })).toEqual(result);
  });

  // Promise 20.21: the same with the extension of 2026-07-28.
  test('2026-07-28: a slow worker becomes a task, and another connection polls its result', async () => {
    const home = doorHome(RULES);
    const options = { protocol: '2026-07-28', capabilities: EXTENSION } as const;
    const first = await startDoor(road, home, options);
    const task = await askRaw(first.client, 'tools/call', delegation('slowly'), EXTENSION);
    expect(task).toMatchObject({ resultType: 'task', status: 'working', ttlMs: null });
    expect(task).not.toHaveProperty('content');
    const { taskId } = task;
    if (road === 'http') await first.client.close();
    await first.kill();

    const second = await startDoor(road, home, options);
    const done = await until(async () => {
      const polled = await ask(second.client, 'tasks/get', { taskId });
      return polled.status === 'completed' ? polled : null;
    });
    expect(done).toMatchObject({ taskId, result: { isError: false, structuredContent: RESULT } });
  });
});

describe.each(ROADS)('over %s, 2025-11-25', (road) => {
  const atEnd = atSuiteEnd();
  let shared: Awaited<ReturnType<typeof mcpOver>>;
  const notified: unknown[] = [];
  const related: unknown[] = [];
  beforeAll(async () => {
    const home = doorHome(RULES, {}, atEnd);
    shared = await mcpOver(road, home, {
      capabilities: FORMS,
      prepare: (client) => {
        client.setRequestHandler('elicitation/create', (request) => {
          related.push(request.params._meta);
          return { action: 'accept', content: { decision: 'approve' } };
        });
        client.fallbackNotificationHandler = async (notification) => void notified.push(notification);
      },
    });
  });
  const startTask = async (task: string) =>
    (await ask(shared.client, 'tools/call', { ...delegation(task), task: {} })).task.taskId;

  test('the server declares tasks, and which tools may be one', async () => {
    expect(shared.client.getServerCapabilities()).toMatchObject({
      tasks: { list: {}, cancel: {}, requests: { tools: { call: {} } } },
    });
    const { tools } = await shared.client.listTools();
    expect(tools.map(({ name, execution }) => [name, execution?.taskSupport])).toEqual([
      ['delegate', 'optional'],
      ['workers', undefined],
      ['cost', undefined],
    ]);
    for (const name of ['workers', 'cost'])
      await expect(ask(shared.client, 'tools/call', { name, arguments: {}, task: {} })).rejects.toMatchObject({
        code: -32601,
      });
  });

  // Promise 20.21: cancelled by its handle, once.
  test('tasks/cancel cancels its worker; a task that has ended is refused', async () => {
    const taskId = await startTask('for ever');
    expect(await ask(shared.client, 'tasks/cancel', { taskId })).toMatchObject({
      taskId,
      status: 'cancelled',
      statusMessage: 'fast worker was cancelled',
    });
    expect((await (await shared.metis()).getSession(taskId)).disposition).toBe('cancelled');
    expect(await ask(shared.client, 'tasks/result', { taskId })).toMatchObject({
      isError: true,
      content: [{ text: expect.stringMatching(/^cancelled_by_user/) }],
    });
    await expect(ask(shared.client, 'tasks/cancel', { taskId })).rejects.toMatchObject({
      code: -32602,
      message: expect.stringContaining(taskId),
    });
  });

  test('a result that is an error is a failed task', async () => {
    const { task: started } = await ask(shared.client, 'tools/call', { ...delegation('break'), task: {} });
    // It may have failed by now: what starts a task is its first state alone.
    expect(started).toMatchObject({ status: 'working', statusMessage: 'fast worker is running' });
    const { taskId } = started;
    expect(await ask(shared.client, 'tasks/result', { taskId })).toMatchObject({ isError: true });
    const task = await ask(shared.client, 'tasks/get', { taskId });
    expect(task).toMatchObject({ status: 'failed', statusMessage: expect.stringContaining('worker_error') });
  });

  // Promise 20.21: an approval is input_required, and tasks/result asks the client.
  test('an approval is input_required until tasks/result has it answered', async () => {
    const taskId = await startTask('write the note');
    const waiting = await until(async () => {
      const task = await ask(shared.client, 'tasks/get', { taskId });
      return task.status === 'input_required' ? task : null;
    });
    expect(waiting.statusMessage).toMatch(/waits for approval at http/);
    const result = await ask(shared.client, 'tasks/result', { taskId });
    expect(result.structuredContent).toMatchObject({ success: true, changed_files: [{ path: 'note.txt' }] });
    expect(related).toEqual([{ 'io.modelcontextprotocol/related-task': { taskId } }]);
    expect(notified).toContainEqual(
      expect.objectContaining({
        method: 'notifications/tasks/status',
        params: expect.objectContaining({ taskId, status: 'completed' }),
      }),
    );
  });

  test('a request for the result that is given up leaves the worker running', async () => {
    const taskId = await startTask('slowly');
    const gone = new AbortController();
    const waiting = shared.client.request(
      { method: 'tasks/result', params: { taskId } },
      { '~standard': { version: 1, vendor: 'test', validate: (value: unknown) => ({ value }) } },
      { signal: gone.signal },
    );
    gone.abort();
    await expect(waiting).rejects.toThrow();
    expect(await ask(shared.client, 'tasks/result', { taskId })).toMatchObject({ structuredContent: RESULT });
  });

  const UNKNOWN = 'sess_01ARZ3NDEKTSV4RRFFQ69G5FAV';
  test.each([
    ['tasks/get', { taskId: UNKNOWN }, UNKNOWN],
    ['tasks/result', { taskId: UNKNOWN }, UNKNOWN],
    ['tasks/cancel', { taskId: UNKNOWN }, UNKNOWN],
    ['tasks/get', { taskId: '../../sessions' }, '../../sessions'],
    ['tasks/get', { taskId: '' }, 'task'],
    ['tasks/get', { taskId: 'x'.repeat(100_000) }, 'xxx'],
    ['tasks/get', { taskId: 7 }, 'taskId'],
    ['tasks/get', {}, 'taskId'],
    ['tasks/list', { cursor: 'nothing' }, 'cursor'],
    ['tasks/list', { cursor: `own:${'x'.repeat(5000)}` }, 'cursor'],
    ['tasks/list', { cursor: 'own:nothing' }, 'cursor'],
    ['tools/call', { ...delegation('at once'), task: { ttl: -1 } }, 'task.ttl'],
    ['tools/call', { ...delegation('at once'), task: { ttl: 1.5 } }, 'task.ttl'],
    ['tools/call', { ...delegation('at once'), task: { ttl: 'long' } }, 'ttl'],
    ['tools/call', { name: 'nobody', arguments: {}, task: {} }, 'nobody'],
    ['tools/call', { name: 'delegate', arguments: { tier: 'huge', task: 'x' }, task: {} }, 'tier'],
  ])('%s with %j is refused and names what is wrong', async (method, params, named) => {
    const error = await ask(shared.client, method, params).then(
      () => null,
      (thrown: Error) => thrown,
    );
    expect(error).toMatchObject({ code: -32602, message: expect.stringContaining(named) });
    expect(error!.message.length).toBeLessThan(1000);
  });

  test('a worker of a turn is no task, nor is a session', async () => {
    const metis = await shared.metis();
    await startTask('at once');
    const { sessions } = await metis.listSessions();
    const root = sessions.find(({ door }) => door === 'mcp')!;
    for await (const _ of metis.turn(root.id, { content: 'delegate it' }));
    const { workers } = await metis.listWorkers(root.id);
    const ofTurn = workers.find(({ parent_turn_id }) => parent_turn_id !== null)!;
    const { tasks } = await ask(shared.client, 'tasks/list');
    expect(tasks.map(({ taskId }) => taskId)).not.toContain(ofTurn.worker_session_id);
    for (const taskId of [root.id, ofTurn.worker_session_id])
      await expect(ask(shared.client, 'tasks/get', { taskId })).rejects.toMatchObject({ code: -32602 });
  });
});

describe.each(ROADS)('over %s, 2026-07-28', (road) => {
  const atEnd = atSuiteEnd();
  let shared: Awaited<ReturnType<typeof mcpOver>>;
  const capabilities = { ...EXTENSION, ...FORMS };
  let workspace = '';
  beforeAll(async () => {
    const home = doorHome(RULES, {}, atEnd);
    workspace = home.workspace;
    shared = await mcpOver(road, home, { protocol: '2026-07-28', capabilities });
  });
  const call = (task: string) => askRaw(shared.client, 'tools/call', delegation(task), capabilities);

  test('the server declares the extension, and a fast worker is no task', async () => {
    expect(shared.client.getServerCapabilities()).toMatchObject(EXTENSION);
    expect(shared.client.getServerCapabilities()).not.toHaveProperty('tasks');
    expect(await call('at once')).toMatchObject({ resultType: 'complete', structuredContent: { output: 'done' } });
  });

  // Promise 20.21: tasks/get carries the form, tasks/update its answer.
  test('an approval is input_required with its form, and tasks/update answers it', async () => {
    const { taskId } = await call('write the note');
    const waiting = await until(async () => {
      const task = await ask(shared.client, 'tasks/get', { taskId });
      return task.status === 'input_required' ? task : null;
    });
    const [[key, form]] = Object.entries(waiting.inputRequests) as [[string, unknown]];
    expect(form).toMatchObject({ method: 'elicitation/create', params: { mode: 'form' } });
    const note = path.join(workspace, 'note.txt');
    const update = (inputResponses: object) => ask(shared.client, 'tasks/update', { taskId, inputResponses });
    // What was not asked for, and what leaves it to others, changes nothing.
    await update({ conf_nothing: { action: 'accept', content: { decision: 'approve' } } });
    await update({ [key]: { action: 'cancel' } });
    const accepted = { action: 'accept', content: { decision: 'approve' } };
    for (const [given, named] of [
      [undefined, 'inputResponses: holds no answer'],
      [{}, 'inputResponses: holds no answer'],
      [[], 'inputResponses: holds no answer'],
      [{ [key]: null }, `inputResponses.${key}: must be an answer`],
      [{ [key]: {} }, `inputResponses.${key}: must be an answer`],
      [{ [key]: { action: 'yes' } }, `inputResponses.${key}: must be an answer`],
      [{ [key]: { method: 'elicitation/create', result: accepted } }, `inputResponses.${key}: must be an answer`],
      [{ [key]: { action: 'accept' } }, `inputResponses.${key}: content.decision must be one of approve`],
      [{ [key]: accepted, conf_other: 'approve' }, 'inputResponses.conf_other: must be an answer'],
    ] as const)
      await expect(update(given as never)).rejects.toMatchObject({
        code: -32602,
        message: expect.stringContaining(named),
      });
    expect(await ask(shared.client, 'tasks/get', { taskId })).toMatchObject({ status: 'input_required' });
    expect(fs.existsSync(note)).toBe(false);
    await update({ [key]: { action: 'accept', content: { decision: 'approve' } } });
    const done = await until(async () => {
      const task = await ask(shared.client, 'tasks/get', { taskId });
      return task.status === 'completed' ? task : null;
    });
    expect(done.result.structuredContent).toMatchObject({ success: true });
    expect(fs.readFileSync(note, 'utf8')).toBe('hi');
  });

  // Promise 20.21: cancelled by its handle.
  test('tasks/cancel is acknowledged, and the task ends as cancelled', async () => {
    const { taskId } = await call('for ever');
    await ask(shared.client, 'tasks/cancel', { taskId });
    const task = await until(async () => {
      const polled = await ask(shared.client, 'tasks/get', { taskId });
      return polled.status === 'cancelled' ? polled : null;
    });
    expect(task).not.toHaveProperty('result');
    await ask(shared.client, 'tasks/cancel', { taskId });
  });

  test('a client without the extension gets results alone, and its task requests are refused', async () => {
    const answer = await askRaw(shared.client, 'tools/call', { ...delegation('slowly'), task: { ttl: 1 } }, {});
    expect(answer).toMatchObject({ resultType: 'complete', structuredContent: RESULT });
    const taskId = answer.structuredContent.worker_session_id;
    for (const method of ['tasks/get', 'tasks/update', 'tasks/cancel'])
      await expect(askRaw(shared.client, method, { taskId, inputResponses: {} }, {})).rejects.toMatchObject({
        code: -32021,
        data: { requiredCapabilities: EXTENSION },
      });
    for (const method of ['tasks/result', 'tasks/list'])
      await expect(askRaw(shared.client, method, { taskId }, capabilities)).rejects.toThrow(/Method not found/);
  });

  test('an unknown task is refused by each request', async () => {
    for (const method of ['tasks/get', 'tasks/update', 'tasks/cancel'])
      await expect(ask(shared.client, method, { taskId: 'sess_none', inputResponses: {} })).rejects.toMatchObject({
        code: -32602,
        message: expect.stringContaining('sess_none'),
      });
  });
});

const OWNER = 'the-token-of-the-caller-that-starts-it';
const STRANGER = 'the-token-of-another-caller-of-the-server';

// Promise 20.21: the handle is its caller's alone.
test('another caller of the same server has no such task', async () => {
  const home = doorHome(RULES, { server: { auth_tokens: [OWNER, STRANGER] } });
  const { url } = await serveIn(home);
  const connect = async (token: string) => (await mcpOverHttp(url, home, { token })).client;
  const owner = await connect(OWNER);
  const { task } = await ask(owner, 'tools/call', { ...delegation('for ever'), task: {} });
  const { taskId } = task;
  const stranger = await connect(STRANGER);
  for (const method of ['tasks/get', 'tasks/result', 'tasks/cancel'])
    await expect(ask(stranger, method, { taskId })).rejects.toMatchObject({
      code: -32602,
      message: expect.stringContaining(taskId),
    });
  expect((await ask(stranger, 'tasks/list')).tasks).toEqual([]);
  const elsewhere = await connect(OWNER);
  expect((await ask(elsewhere, 'tasks/list')).tasks).toMatchObject([{ taskId, status: 'working' }]);
  await ask(elsewhere, 'tasks/cancel', { taskId });
});

test('the list has a page for each 50 sessions, and every task once', async () => {
  const home = doorHome(RULES);
  const { client } = await mcpOver('http', home);
  const started = await Promise.all(
    Array.from({ length: 60 }, () => ask(client, 'tools/call', { ...delegation('at once'), task: {} })),
  );
  const listed: string[] = [];
  let cursor: string | undefined;
  let pages = 0;
  do {
    const page = await ask(client, 'tasks/list', cursor === undefined ? {} : { cursor });
    expect(page.tasks.length).toBeLessThanOrEqual(50);
    listed.push(...page.tasks.map(({ taskId }) => taskId));
    cursor = page.nextCursor;
    pages += 1;
  } while (cursor !== undefined);
  expect(pages).toBe(2);
  expect(listed.toSorted()).toEqual(started.map(({ task }) => task.taskId).toSorted());
});

test('a call as a task that cannot begin is an error of the protocol', async () => {
  const home = doorHome(RULES);
  const { url, client: metis } = await serveIn(home);
  const { client } = await mcpOverHttp(url, home);
  const { task } = await ask(client, 'tools/call', { ...delegation('at once'), task: {} });
  await metis.endSession((await metis.getSession(task.taskId)).root_session_id);
  await expect(ask(client, 'tools/call', { ...delegation('at once'), task: {} })).rejects.toMatchObject({
    code: -32602,
    message: expect.stringContaining('session_already_ended'),
  });
});
