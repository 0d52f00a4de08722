// A worker's question through the client's own form, over both roads and both protocols (19 §3.3).
import fs from 'node:fs';
import path from 'node:path';
import type { Client, ElicitResult } from '@modelcontextprotocol/client';
import { beforeAll, beforeEach, describe, expect, test } from 'vitest';
import {
  atSuiteEnd,
  doorHome,
  type Home,
  mcpOver,
  PROTOCOLS,
  type ProtocolVersion,
  ROADS,
  type Road,
  usage,
} from '../support/doors.ts';
import { until } from '../support/until.ts';

const WAYS = ROADS.flatMap((road) => PROTOCOLS.map((protocol) => ({ road, protocol })));
const WRITES = [
  {
    match: { role: 'worker', call: 1 },
    times: 'inf',
    respond: { tool_calls: [{ name: 'write_file', input: { path: 'note.txt', content: 'hi' } }], usage },
  },
  {
    match: { role: 'worker', call: 2 },
    times: 'inf',
    respond: { text: 'The tool said: {{last_tool_result}}', usage },
  },
];

interface Asking {
  readonly home: Home;
  /** What was asked so far. */
  readonly asked: string[];
  readonly metis: Awaited<ReturnType<typeof mcpOver>>['metis'];
  /** Has a worker write the note, and the person answer so. */
  call(answer: (message: string) => ElicitResult | Promise<ElicitResult>): ReturnType<Client['callTool']>;
}
async function asking(home: Home, { road, protocol }: { road: Road; protocol: ProtocolVersion }): Promise<Asking> {
  const asked: string[] = [];
  let answers: Parameters<Asking['call']>[0];
  const prepare = (client: Client) =>
    client.setRequestHandler('elicitation/create', (request) => {
      asked.push(request.params.message);
      return answers(request.params.message);
    });
  const { client, metis } = await mcpOver(road, home, {
    protocol,
    capabilities: { elicitation: { form: {} } },
    prepare,
  });
  const call: Asking['call'] = (answer) => {
    answers = answer;
    return client.callTool({ name: 'delegate', arguments: { tier: 'fast', task: 'write the note' } });
  };
  return { home, asked, metis, call };
}
const note = (home: Home) => path.join(home.workspace, 'note.txt');
const written = (home: Home) => fs.existsSync(note(home));
const workersOf = async (metis: Asking['metis']) =>
  (await (await metis()).listSessions({ include_workers: true })).sessions.filter(({ is_worker }) => is_worker).length;

describe.each(WAYS)('over $road with $protocol', (way) => {
  // One door and its server for all four: a process takes longer to start than a call.
  const atEnd = atSuiteEnd();
  let shared: Asking;
  let before: number;
  beforeAll(async () => {
    shared = await asking(doorHome(WRITES, {}, atEnd), way);
  });
  beforeEach(async () => {
    shared.asked.length = 0;
    fs.rmSync(note(shared.home), { force: true });
    before = await workersOf(shared.metis);
  });
  const oneWorker = async () => expect(await workersOf(shared.metis)).toBe(before + 1);

  // Promise 19.18: accept decides as the form says.
  test('accept decides as the form says, for one worker', async () => {
    const { home, asked, call } = shared;
    const result = await call(() => ({ action: 'accept', content: { decision: 'approve' } }));
    expect(result.structuredContent).toMatchObject({ success: true, changed_files: [{ path: 'note.txt' }] });
    expect(asked).toEqual([expect.stringMatching(/^fast worker wants to use write_file: .*note\.txt/)]);
    expect(written(home)).toBe(true);
    await oneWorker();
  });

  // Promise 19.18: decline rejects.
  test('decline rejects', async () => {
    const result = await shared.call(() => ({ action: 'decline' }));
    expect(result.structuredContent).toMatchObject({ output: 'The tool said: User denied this operation.' });
    expect(written(shared.home)).toBe(false);
    await oneWorker();
  });

  // Promise 19.18: cancel leaves the question open in the inbox.
  test('cancel leaves it to the inbox, where it waits', async () => {
    const { home, asked, metis, call } = shared;
    const called = call(() => ({ action: 'cancel' }));
    const open = await until(async () => (await (await metis()).listConfirmations()).confirmations[0]);
    await until(() => asked.length === 1);
    await (await metis()).answerConfirmation(open.confirmation_request_id, { decision: 'approve' });
    expect((await called).structuredContent).toMatchObject({ success: true });
    expect(asked).toHaveLength(1);
    expect(written(home)).toBe(true);
    await oneWorker();
  });

  // Promise 19.18: the inbox may be faster.
  test('who answers in the inbox first is right', async () => {
    let late: (answer: ElicitResult) => void = () => {};
    const { home, asked, metis, call } = shared;
    const called = call(
      () =>
        new Promise((resolve) => {
          late = resolve;
        }),
    );
    const open = await until(async () => (await (await metis()).listConfirmations()).confirmations[0]);
    await until(() => asked.length === 1);
    await (await metis()).answerConfirmation(open.confirmation_request_id, { decision: 'approve' });
    late({ action: 'accept', content: { decision: 'reject' } });
    expect((await called).structuredContent).toMatchObject({ success: true });
    expect(written(home)).toBe(true);
    await oneWorker();
  });
});

// Promise 19.18: without forms the progress says what waits and where.
test('a client without forms is told what waits and where', async () => {
  const home = doorHome(WRITES);
  const { client, metis } = await mcpOver('stdio', home);
  const seen: string[] = [];
  const called = client.callTool(
    { name: 'delegate', arguments: { tier: 'fast', task: 'write the note' } },
    { onprogress: ({ message }) => void seen.push(message ?? '') },
  );
  const told = await until(() => seen.find((message) => message.includes('waits for approval')));
  expect(told).toMatch(/write_file: .* at http:\/\/127\.0\.0\.1:\d+\//);
  const [open] = (await (await metis()).listConfirmations()).confirmations;
  await (await metis()).answerConfirmation(open!.confirmation_request_id, { decision: 'reject' });
  expect((await called).structuredContent).toMatchObject({ success: true });
});

test('an answer without a decision approves nothing', async () => {
  const home = doorHome(WRITES);
  const { call } = await asking(home, { road: 'http', protocol: '2026-07-28' });
  await call(() => ({ action: 'accept', content: { decision: 'whatever' } }) as ElicitResult);
  expect(written(home)).toBe(false);
});

// Promise 19.18: what nobody answers ends with its time.
test('a question that nobody answers ends with its time, and the worker goes on', async () => {
  const home = doorHome(WRITES, { tool_confirmation: { timeout_seconds: 1 } });
  let asked = 0;
  const prepare = (client: Client) =>
    client.setRequestHandler('elicitation/create', () => {
      asked += 1;
      return new Promise<ElicitResult>(() => {});
    });
  const { client } = await mcpOver('stdio', home, { capabilities: { elicitation: { form: {} } }, prepare });
  const result = await client.callTool({ name: 'delegate', arguments: { tier: 'fast', task: 'write the note' } });
  expect(result.structuredContent).toMatchObject({
    success: true,
    output: expect.stringMatching(/Confirmation timed out/),
  });
  expect(asked).toBe(1);
  expect(written(home)).toBe(false);
});
