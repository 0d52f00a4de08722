// A worker's question through the client's own form, over both roads and both protocols (19 §3.3).
import fs from 'node:fs';
import path from 'node:path';
import type { Client, ElicitResult } from '@modelcontextprotocol/client';
import { describe, expect, test } from 'vitest';
import {
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
    respond: { tool_calls: [{ name: 'write_file', input: { path: 'note.txt', content: 'hi' } }], usage },
  },
  { match: { role: 'worker', call: 2 }, respond: { text: 'The tool said: {{last_tool_result}}', usage } },
];

async function asking(
  { road, protocol }: { road: Road; protocol: ProtocolVersion },
  answer: (message: string) => ElicitResult | Promise<ElicitResult>,
) {
  const home = doorHome(WRITES);
  const asked: string[] = [];
  const prepare = (client: Client) =>
    client.setRequestHandler('elicitation/create', (request) => {
      asked.push(request.params.message);
      return answer(request.params.message);
    });
  const { client, metis } = await mcpOver(road, home, {
    protocol,
    capabilities: { elicitation: { form: {} } },
    prepare,
  });
  const call = () => client.callTool({ name: 'delegate', arguments: { tier: 'fast', task: 'write the note' } });
  return { home, asked, client, metis, call };
}
const written = (home: Home) => fs.existsSync(path.join(home.workspace, 'note.txt'));
const oneWorker = async (metis: Awaited<ReturnType<typeof asking>>['metis']) => {
  const { sessions } = await (await metis()).listSessions({ include_workers: true });
  expect(sessions.filter(({ is_worker }) => is_worker)).toHaveLength(1);
};

describe.each(WAYS)('over $road with $protocol', (way) => {
  test('accept decides as the form says, for one worker', async () => {
    const { home, asked, metis, call } = await asking(way, () => ({
      action: 'accept',
      content: { decision: 'approve' },
    }));
    const result = await call();
    expect(result.structuredContent).toMatchObject({ success: true, changed_files: [{ path: 'note.txt' }] });
    expect(asked).toEqual([expect.stringMatching(/^fast worker wants to use write_file: .*note\.txt/)]);
    expect(written(home)).toBe(true);
    await oneWorker(metis);
  });

  test('decline rejects', async () => {
    const { home, metis, call } = await asking(way, () => ({ action: 'decline' }));
    expect((await call()).structuredContent).toMatchObject({ output: 'The tool said: User denied this operation.' });
    expect(written(home)).toBe(false);
    await oneWorker(metis);
  });

  test('cancel leaves it to the inbox, where it waits', async () => {
    const { home, asked, metis, call } = await asking(way, () => ({ action: 'cancel' }));
    const called = call();
    const open = await until(async () => (await (await metis()).listConfirmations()).confirmations[0]);
    await until(() => asked.length === 1);
    await (await metis()).answerConfirmation(open.confirmation_request_id, { decision: 'approve' });
    expect((await called).structuredContent).toMatchObject({ success: true });
    expect(asked).toHaveLength(1);
    expect(written(home)).toBe(true);
    await oneWorker(metis);
  });

  test('who answers in the inbox first is right', async () => {
    let late: (answer: ElicitResult) => void = () => {};
    const { home, asked, metis, call } = await asking(
      way,
      () =>
        new Promise((resolve) => {
          late = resolve;
        }),
    );
    const called = call();
    const open = await until(async () => (await (await metis()).listConfirmations()).confirmations[0]);
    await until(() => asked.length === 1);
    await (await metis()).answerConfirmation(open.confirmation_request_id, { decision: 'approve' });
    late({ action: 'accept', content: { decision: 'reject' } });
    expect((await called).structuredContent).toMatchObject({ success: true });
    expect(written(home)).toBe(true);
    await oneWorker(metis);
  });
});

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
  const { home, call } = await asking(
    { road: 'http', protocol: '2026-07-28' },
    () => ({ action: 'accept', content: { decision: 'whatever' } }) as ElicitResult,
  );
  await call();
  expect(written(home)).toBe(false);
});

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
