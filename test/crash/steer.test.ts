// What was said to a running turn outlives the kill of its process (20 §4).
import fs from 'node:fs';
import path from 'node:path';
import { afterEach, expect, it } from 'vitest';
import { until } from '../support/until.ts';
import { type Json, startWorld, type World } from './world.ts';

/** Leaves its mark and then goes on until the file `go` is there. */
const command = { name: 'shell', input: { command: 'echo run >> log.txt; until [ -e go ]; do sleep 0.05; done' } };

let world: World;
afterEach(() => world.close());

// Promise 20.8: kill -9 before the boundary, and it is there after the restart.
it('kill -9 before the boundary: after the restart it stands behind the tool result, once, over a real wire', async () => {
  world = await startWorld(({ results }) => (results.length === 0 ? { tool_calls: [command] } : { text: 'heard' }));
  const first = await world.serve();
  const id = await world.session();
  const turnId = await world.submit(id, 'go');
  await until(() => fs.existsSync(path.join(world.workspace, 'log.txt')));
  const body = { content: 'and be brief', if_busy: 'steer' };
  const receipt = await world.ask('POST', `/sessions/${id}/turns`, { body });
  expect(receipt).toMatchObject({ turn_id: turnId, steered: true, user_message_id: null });
  await first.stop('SIGKILL');
  fs.writeFileSync(path.join(world.workspace, 'go'), '');

  await world.serveHere();
  expect(await world.ended(id, turnId)).toMatchObject({ status: 'completed', output: 'heard', unread_inputs: 0 });
  const { messages } = await world.ask('GET', `/sessions/${id}/messages`);
  const said = messages.map((m: Json) => `${m.role} ${m.content[0].text ?? ''}`.trim());
  expect(said).toEqual(['user go', 'assistant', 'tool', 'user and be brief', 'assistant heard']);
  const { events } = await world.ask('GET', `/sessions/${id}/events?types=turn.steered`);
  expect(events).toHaveLength(1);
  expect(events[0].payload).toMatchObject({ input_id: receipt.input_id, message_id: messages[3].id });
});

// Promise 20.18: kill -9 between the request and the boundary, and the turn is concluded after the restart.
it('kill -9 behind a conclusion: after the restart the turn makes its last call, over a real wire', async () => {
  world = await startWorld(({ results }) =>
    results.length === 0 ? { tool_calls: [command] } : { text: 'as far as I got' },
  );
  const first = await world.serve();
  const id = await world.session();
  const turnId = await world.submit(id, 'go');
  await until(() => fs.existsSync(path.join(world.workspace, 'log.txt')));
  const conclude = (rest = {}) => world.ask('POST', `/sessions/${id}/turns/${turnId}/conclude`, { body: {}, ...rest });
  expect(await conclude()).toEqual({ turn_id: turnId, applied: true });
  await first.stop('SIGKILL');
  fs.writeFileSync(path.join(world.workspace, 'go'), '');

  await world.serveHere();
  expect(await world.ended(id, turnId)).toMatchObject({ status: 'completed', output: 'as far as I got' });
  const { messages } = await world.ask('GET', `/sessions/${id}/messages`);
  const said = messages.map((m: Json) => `${m.role} ${m.content[0].text ?? ''}`.trim());
  expect(said).toEqual([
    'user go',
    'assistant',
    'tool',
    'user [Stop here: answer now with what you have.]',
    'assistant as far as I got',
  ]);
});
