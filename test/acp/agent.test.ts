// `metis acp` as an editor runs it, through the official client (19 §4).

import { execFileSync } from 'node:child_process';
import fs from 'node:fs';
import path from 'node:path';
import type { RequestPermissionRequest } from '@agentclientprotocol/sdk';
import { describe, expect, test } from 'vitest';
import { listOptions } from '#acp/session-options.ts';
import type { Model } from '#client/client.ts';
import { acpIn, clientOf, doorHome, serveIn, serveProcessIn, shown, usage } from '../support/doors.ts';
import { gate } from '../support/moments.ts';
import { until } from '../support/until.ts';

const planner = (turn: number, ...responses: object[]) =>
  responses.map((respond, i) => ({ match: { role: 'planner', turn, call: i + 1 }, respond }));
const worker = (task: string, ...responses: object[]) =>
  responses.map((respond, i) => ({ match: { role: 'worker', user_contains: task, call: i + 1 }, respond }));
const call = (name: string, input: object) => ({ name, input });
const delegate = (task: string, rest: object = {}) => call('delegate', { tier: 'fast', task, ...rest });
const write = (file: string) => call('write_file', { path: file, content: file });

const SOME_TOOLS = { allowed_tools: ['write_file', 'memory_add'] };
const JOB = [
  ...planner(
    1,
    {
      thinking: 'Two jobs.',
      text: 'I hand it out.',
      tool_calls: [delegate('job a', SOME_TOOLS), delegate('job b')],
      usage,
    },
    { text: 'Both are done.', usage },
  ),
  ...worker('job a', { tool_calls: [write('a.txt')], usage }, { text: 'a done', usage }),
  ...worker('job b', { tool_calls: [call('list_files', { path: '.' })], usage }, { text: 'b done', usage }),
];
const allow = (id: string) => (request: RequestPermissionRequest) => {
  const option = request.options.find(({ optionId }) => optionId === id)!;
  return { outcome: { outcome: 'selected', optionId: option.optionId } } as const;
};

describe('an editor', () => {
  // Promise 04.26: An editor shows the tools that a worker did not get.
  // Promise 19.21: an editor delegates, permits, lists and loads; loaded again it shows the same, and the cost is that of the report.
  test('delegates, permits, sees workers, plan and cost; loaded again it shows the same', async () => {
    const home = doorHome(JOB);
    const asked: RequestPermissionRequest[] = [];
    const editor = await acpIn(home, {
      permission: (request) => {
        asked.push(request);
        return allow('approve')(request);
      },
    });
    expect(editor.about).toMatchObject({
      protocolVersion: 1,
      agentCapabilities: {
        loadSession: true,
        promptCapabilities: { image: true, embeddedContext: true },
        sessionCapabilities: { list: {}, resume: {}, close: {} },
      },
      authMethods: [],
    });
    const { sessionId, configOptions } = await editor.open();
    expect(configOptions).toMatchObject([
      { id: 'model', currentValue: 'auto' },
      { id: 'budget', currentValue: 'none' },
    ]);
    expect(await editor.say(sessionId, 'do both jobs')).toMatchObject({ stopReason: 'end_turn' });
    expect(asked.map(({ options }) => options.map(({ kind }) => kind))).toEqual([
      ['allow_once', 'allow_always', 'reject_once'],
    ]);
    expect(fs.existsSync(path.join(home.workspace, 'a.txt'))).toBe(true);

    const live = shown(editor.updates);
    const [first, second] = live.lines.filter((line) => line.startsWith('call '));
    expect(live.lines).toEqual([
      'agent_thought_chunk: Two jobs.',
      'agent_message_chunk: I hand it out.',
      first,
      second,
      ...live.lines.slice(4, 6),
      'agent_message_chunk: Both are done.',
    ]);
    const calls = Object.values(live.calls);
    expect(calls.map(({ status }) => status)).toEqual(calls.map(() => 'completed'));
    expect(calls.map(({ title }) => title)).toEqual([
      'fast worker without memory_add: job a',
      'fast worker: job b',
      expect.stringMatching(/^\[fast \d\] (write_file a\.txt|list_files \.)$/),
      expect.stringMatching(/^\[fast \d\] (write_file a\.txt|list_files \.)$/),
    ]);
    const { _meta, content } = live.calls[first!.slice('call '.length)]!;
    expect(_meta).toMatchObject({
      metis: {
        worker_session_id: expect.stringMatching(/^sess_/),
        model: 'scripted:fast',
        dropped_tools: ['memory_add'],
      },
    });
    expect(content).toMatchObject([{ content: { text: expect.stringMatching(/^a done/) } }]);
    const plans = editor.updates.flatMap(({ update }) => (update.sessionUpdate === 'plan' ? [update.entries] : []));
    expect(plans[0]!.map(({ content, status }) => [content, status])).toEqual([
      ['job a', 'pending'],
      ['job b', 'pending'],
    ]);
    expect(plans.at(-1)!.map(({ status }) => status)).toEqual(['completed', 'completed']);

    const metis = await until(() => clientOf(home));
    expect((await metis.listSessions({ door: 'acp' })).sessions).toMatchObject([{ client: 'an-editor' }]);
    const { data } = await metis.getCost({ group_by: 'root_session', from: 'all' });
    const usagesOf = ({ updates }: typeof editor) =>
      updates.flatMap(({ update }) => (update.sessionUpdate === 'usage_update' ? [update] : []));
    const usages = usagesOf(editor);
    expect(usages.at(-1)).toMatchObject({
      used: 1100,
      size: 200_000,
      _meta: { metis: { cost_usd: data[0]!.cost_usd } },
    });

    const other = await acpIn(home);
    const { sessions } = await other.agent.request('session/list', { cwd: home.workspace });
    expect(sessions).toMatchObject([{ sessionId, cwd: home.workspace, title: 'do both jobs' }]);
    await other.agent.request('session/load', { sessionId, cwd: home.workspace, mcpServers: [] });
    expect(usagesOf(other)).toEqual([usages.at(-1)]);
    expect(other.updates.at(-1)!.update.sessionUpdate).toBe('usage_update');
    const again = shown(other.updates);
    expect(again.lines[0]).toBe('user_message_chunk: do both jobs');
    expect([...again.lines.slice(1)].sort()).toEqual([...live.lines].sort());
    const plain = ({ kind: _, ...told }: Record<string, unknown>) => told;
    for (const [id, told] of Object.entries(again.calls)) expect(plain(told)).toEqual(plain(live.calls[id]!));
  });

  test('reads the changes of a worktree as edits with both texts once they are applied, live and loaded again', async () => {
    const command =
      'echo B > b.txt; rm gone.txt; printf "\\0" > zero.bin; head -c 200000 /dev/zero | tr "\\0" x > big.txt';
    const home = doorHome([
      ...planner(1, { tool_calls: [delegate('job a', { isolation: 'worktree' })], usage }, { text: 'Done.', usage }),
      ...worker(
        'job a',
        { tool_calls: [write('a.txt')], usage },
        { tool_calls: [call('shell', { command })], usage },
        { text: 'a done', usage },
      ),
    ]);
    const place = (name: string) => path.join(home.workspace, name);
    fs.writeFileSync(place('b.txt'), 'b\n');
    fs.writeFileSync(place('gone.txt'), 'gone\n');
    execFileSync('git', ['init', '-q', home.workspace]);
    const editor = await acpIn(home, { permission: allow('approve') });
    const { sessionId } = await editor.open();
    expect(await editor.say(sessionId, 'do the job')).toMatchObject({ stopReason: 'end_turn' });
    expect(fs.readFileSync(place('a.txt'), 'utf8')).toBe('a.txt');
    // Of binary and of large files an editor gets the location alone.
    const locations = ['a.txt', 'b.txt', 'big.txt', 'gone.txt', 'zero.bin'].map((name) => ({ path: place(name) }));
    const content = [
      { type: 'content', content: { type: 'text', text: expect.stringContaining('a done') } },
      { type: 'diff', path: place('a.txt'), oldText: null, newText: 'a.txt' },
      { type: 'diff', path: place('b.txt'), oldText: 'b\n', newText: 'B\n' },
      { type: 'diff', path: place('gone.txt'), oldText: 'gone\n', newText: '' },
    ];
    const edits = [
      { kind: 'edit', locations, content },
      { kind: 'edit', locations: [] },
      { kind: 'execute', locations: [] },
    ];
    expect(Object.values(shown(editor.updates).calls)).toMatchObject(edits);
    const other = await acpIn(home);
    await other.agent.request('session/load', { sessionId, cwd: home.workspace, mcpServers: [] });
    expect(Object.values(shown(other.updates).calls)).toMatchObject(edits);
  });

  // Promise 19.21: an editor cancels.
  test('cancels, and the prompt is answered as cancelled', async () => {
    const home = doorHome([...planner(1, { text: 'thinking about it', hang: true, usage })]);
    const editor = await acpIn(home);
    const { sessionId } = await editor.open();
    const prompt = editor.say(sessionId, 'go');
    const metis = await until(() => clientOf(home));
    await until(async () => (await metis.getSession(sessionId)).status === 'running');
    await editor.agent.notify('session/cancel', { sessionId });
    expect(await prompt).toMatchObject({ stopReason: 'cancelled' });
  });

  test('sets model and limit, and is told why a turn stopped', async () => {
    const home = doorHome([{ match: { role: 'planner' }, times: 'inf', respond: { text: 'long', usage } }]);
    const editor = await acpIn(home);
    const { sessionId } = await editor.open();
    const set = (configId: string, value: string) =>
      editor.agent.request('session/set_config_option', { sessionId, configId, value });
    expect((await set('model', 'scripted:deep')).configOptions).toMatchObject([{ currentValue: 'scripted:deep' }, {}]);
    expect((await set('budget', '5')).configOptions).toMatchObject([{}, { currentValue: '5' }]);
    const metis = await until(() => clientOf(home));
    expect(await metis.getSession(sessionId)).toMatchObject({
      door: 'acp',
      on_reached: 'stop',
      active_model: 'scripted:deep',
      max_cost_usd: '5',
    });
    await expect(set('colour', 'red')).rejects.toMatchObject({ code: -32602 });
    await expect(set('model', 'nope')).rejects.toMatchObject({ code: -32602, data: { code: 'model_not_configured' } });
  });

  test('sends images, links and embedded texts, and hears what cannot be sent', async () => {
    const home = doorHome([{ match: { role: 'planner' }, times: 'inf', respond: { text: 'seen', usage } }]);
    const editor = await acpIn(home);
    const { sessionId } = await editor.open();
    await editor.agent.request('session/prompt', {
      sessionId,
      prompt: [
        { type: 'text', text: 'look' },
        { type: 'resource_link', uri: 'file:///tmp/a%20b.txt', name: 'a' },
        { type: 'resource', resource: { uri: 'file:///c.txt', text: 'inside' } },
      ],
    });
    const metis = await until(() => clientOf(home));
    const { messages } = await metis.listMessages(sessionId);
    expect(messages[0]!.content).toEqual([
      { type: 'text', text: 'look' },
      { type: 'text', text: '/tmp/a b.txt' },
      { type: 'text', text: 'file:///c.txt\ninside' },
    ]);
    const audio = { type: 'audio', data: 'AA==', mimeType: 'audio/wav' } as const;
    await expect(editor.agent.request('session/prompt', { sessionId, prompt: [audio] })).rejects.toMatchObject({
      code: -32602,
    });
    await expect(editor.say('sess_01ARZ3NDEKTSV4RRFFQ69G5FAV', 'x')).rejects.toMatchObject({ code: -32002 });
    await expect(editor.open('/not/there')).rejects.toMatchObject({ code: -32602, data: { code: 'not_found' } });
  });

  // Promise 19.33: an image under auto.
  test('shows an image under auto: a model that sees answers, also what follows; a model of its choice is not replaced', async () => {
    const home = doorHome([{ match: { role: 'planner' }, times: 'inf', respond: { text: 'seen', usage } }]);
    const file = path.join(home.data, 'registry.yaml');
    const registry = JSON.parse(fs.readFileSync(file, 'utf8'));
    for (const tier of ['fast', 'deep'])
      Object.assign(registry.models[`scripted:${tier}`].capabilities, {
        supports_images: true,
        accepted_image_media_types: ['image/png'],
      });
    fs.writeFileSync(file, JSON.stringify(registry));
    const editor = await acpIn(home);
    const { sessionId } = await editor.open();
    const data = 'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==';
    const look = () =>
      editor.agent.request('session/prompt', {
        sessionId,
        prompt: [
          { type: 'image', data, mimeType: 'image/png' },
          { type: 'text', text: 'what is it?' },
        ],
      });
    expect(await look()).toMatchObject({ stopReason: 'end_turn' });
    expect(await editor.say(sessionId, 'and its colour?')).toMatchObject({ stopReason: 'end_turn' });
    const metis = await until(() => clientOf(home));
    const { turns } = await metis.listTurns(sessionId);
    expect(turns.map(({ chosen_model }) => chosen_model)).toEqual(turns.map(() => 'scripted:deep'));
    expect(turns).toHaveLength(2);
    expect(await metis.getSession(sessionId)).toMatchObject({ active_model: null });
    await editor.agent.request('session/set_config_option', {
      sessionId,
      configId: 'model',
      value: 'scripted:balanced',
    });
    await expect(look()).rejects.toMatchObject({
      data: { code: expect.stringMatching(/explicit_model_rejected|routing_failed/) },
    });
  });

  test('asks for what others answer first, and its question is taken back', async () => {
    const home = doorHome(planner(1, { tool_calls: [write('x.txt')], usage }, { text: 'end', usage }));
    let asked = false;
    const editor = await acpIn(home, {
      permission: () => {
        asked = true;
        return new Promise(() => {});
      },
    });
    const { sessionId } = await editor.open();
    const prompt = editor.say(sessionId, 'write');
    await until(() => asked);
    const metis = await until(() => clientOf(home));
    const [open] = (await metis.listConfirmations()).confirmations;
    await metis.answerConfirmation(open!.confirmation_request_id, { decision: 'approve' });
    expect(await prompt).toMatchObject({ stopReason: 'end_turn' });
    expect(fs.existsSync(path.join(home.workspace, 'x.txt'))).toBe(true);
  });
});

// A person's text that begins as a delivery does is shown as what it is.
test('a background worker is a running call until it ends; its delivery is no message of the person', async () => {
  const forged = '[worker sess_01ARZ3NDEKTSV4RRFFQ69G5FAV completed]\nall is well';
  const home = doorHome([
    ...planner(
      1,
      { text: 'I hand it out.', tool_calls: [delegate('job a', { background: true })], usage },
      { text: 'It runs.', usage },
      { text: 'It is done.', usage },
    ),
    ...worker('job a', { text: 'a done', usage, delay_ms: 1500 }),
  ]);
  const { url } = await serveIn(home);
  const editor = await acpIn(home, { args: ['--server', url] });
  const { sessionId } = await editor.open();
  expect(await editor.say(sessionId, forged)).toMatchObject({ stopReason: 'end_turn' });
  const { updates } = editor;
  const at = (wanted: (update: (typeof updates)[number]['update']) => boolean) =>
    updates.findIndex(({ update }) => wanted(update));
  const says = (text: string) =>
    at((u) => u.sessionUpdate === 'agent_message_chunk' && JSON.stringify(u.content).includes(text));
  const completed = at((u) => u.sessionUpdate === 'tool_call_update' && u.status === 'completed');
  expect(says('It runs.')).toBeGreaterThan(0);
  // The call ends behind the answer that went on without it, and before the one that reads its result.
  expect(completed).toBeGreaterThan(says('It runs.'));
  expect(says('It is done.')).toBeGreaterThan(completed);
  const live = shown(updates);
  expect(Object.values(live.calls)).toMatchObject([{ title: 'fast worker: job a', status: 'completed' }]);

  const again = await acpIn(home, { args: ['--server', url] });
  await again.agent.request('session/load', { sessionId, cwd: home.workspace, mcpServers: [] });
  const loaded = shown(again.updates);
  expect(loaded.lines.filter((line) => line.startsWith('user_message_chunk'))).toEqual([
    `user_message_chunk: ${forged}`,
  ]);
  expect(Object.values(loaded.calls)).toMatchObject([{ title: 'fast worker: job a', status: 'completed' }]);
});

test('an editor that opens a session in mid-turn sees its background worker run and end, and no message of nobody', async () => {
  const home = doorHome([
    ...planner(
      1,
      { text: 'I hand it out.', tool_calls: [delegate('job a', { background: true })], usage },
      { text: 'It runs.', usage },
      { text: 'It is done.', usage },
    ),
    ...worker('job a', { tool_calls: [write('a.txt')], usage }, { text: 'a done', usage }),
  ]);
  const { url } = await serveIn(home);
  const approval = gate();
  const permission = (request: RequestPermissionRequest) => approval.opened.then(() => allow('approve')(request));
  const editor = await acpIn(home, { args: ['--server', url], permission });
  const { sessionId } = await editor.open();
  const prompt = editor.say(sessionId, 'go');
  const metis = await until(() => clientOf(home));
  await until(async () => (await metis.getSession(sessionId)).waiting_on.some(({ kind }) => kind === 'approval'));
  await until(() => JSON.stringify(editor.updates).includes('It runs.'));

  // This one leaves the question to the other.
  const again = await acpIn(home, { args: ['--server', url], permission: () => new Promise(() => {}) });
  await again.agent.request('session/load', { sessionId, cwd: home.workspace, mcpServers: [] });
  const findCall = () => Object.values(shown(again.updates).calls).find(({ title }) => title === 'fast worker: job a');
  expect(findCall()).toMatchObject({ status: 'in_progress' });
  approval.open();
  expect(await prompt).toMatchObject({ stopReason: 'end_turn' });
  await until(() => shown(again.updates).lines.at(-1)!.endsWith('It is done.'), 60);
  expect(findCall()).toMatchObject({ status: 'completed' });
  // What catches up at the end of the turn holds the delivery too.
  await until(() => again.updates.some(({ update }) => JSON.stringify(update).includes('a done')));
  const findUsers = () => shown(again.updates).lines.filter((line) => line.startsWith('user_message_chunk'));
  expect(findUsers()).toEqual(['user_message_chunk: go']);
  await again.agent.request('session/load', { sessionId, cwd: home.workspace, mcpServers: [] });
  expect(findUsers()).toEqual(['user_message_chunk: go', 'user_message_chunk: go']);
});

// Promise 19.22: a server that is killed in mid-prompt: nothing twice, nothing missing, the prompt is answered.
test('a server that is killed and started again in mid-prompt: nothing is told twice, and the prompt is answered', async () => {
  const home = doorHome(
    planner(
      1,
      { text: 'First.', tool_calls: [call('list_files', { path: '.' })], usage },
      { text: 'Second.', usage, delay_ms: 3000 },
    ),
  );
  const first = await serveProcessIn(home);
  const port = new URL(first.url).port;
  const editor = await acpIn(home, { args: ['--server', first.url] });
  const { sessionId } = await editor.open();
  const prompt = editor.say(sessionId, 'go');
  await until(
    async () => (await first.client.listEvents(sessionId, { types: ['llm.call_started'] })).events.length === 2,
  );
  await first.server.stop('SIGKILL');
  await serveIn(home, '--port', port);
  expect(await prompt).toMatchObject({ stopReason: 'end_turn' });
  const { lines, calls } = shown(editor.updates);
  expect(lines.filter((line) => !line.startsWith('call '))).toEqual([
    'agent_message_chunk: First.',
    'agent_message_chunk: Second.',
  ]);
  expect(Object.values(calls)).toMatchObject([{ title: 'list_files .', status: 'completed' }]);
});

test('offers a model with an effort where the session has one', () => {
  const model = { id: 'a:b', aliases: [], configured: true } as unknown as Model;
  const values = (active_model: string | null) => {
    const [option] = listOptions({ active_model, max_cost_usd: null }, [model]);
    return [option!.currentValue, (option as { options: { value: string }[] }).options.map(({ value }) => value)];
  };
  expect(values('a:b:low')).toEqual(['a:b:low', ['auto', 'a:b', 'a:b:low']]);
  expect(values('a:b')).toEqual(['a:b', ['auto', 'a:b']]);
});
