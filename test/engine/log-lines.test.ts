// A line of the log that speaks of a turn says which: somebody has to find it.
import { expect, it } from 'vitest';
import { cancelTurn } from '#core/engine/control-turn.ts';
import { createLogger } from '#server/log.ts';
import { startEngine, tempFolder } from '../support/engine.ts';
import { startServer } from '../support/http.ts';
import { manualClock } from '../support/manual-clock.ts';
import { startReal, startStrictFake } from '../support/real-server.ts';
import { registryAt } from '../support/registry-at.ts';
import { call, planner, scenario } from '../support/scenario.ts';
import { tool } from '../support/tools.ts';

type Line = { readonly level: string; readonly msg: string; readonly session_id?: string; readonly turn_id?: string };

function recorded() {
  const lines: Line[] = [];
  return { lines, log: createLogger('trace', () => [], { write: (line) => void lines.push(JSON.parse(line)) }) };
}

it('a tool that breaks and a call that is tried again are logged with session and turn', async () => {
  const { lines, log } = recorded();
  const broken = tool('broken', {
    execute: () => {
      throw new TypeError('no');
    },
  });
  const t = await startEngine({
    log,
    tools: [broken],
    scenario: scenario(
      planner({ tool_calls: [call('broken', {})] }, { error: { error_class: 'server_error', status: 500 } }),
    ),
  });
  const session = await t.session();
  const turnId = await t.submit(session, 'go');
  await t.ended(turnId);
  const loud = lines.filter(({ level }) => level === 'error' || level === 'warn');
  expect(loud.map(({ msg }) => msg)).toContain('a tool failed unexpectedly');
  for (const line of loud) expect(line, line.msg).toMatchObject({ session_id: session.id, turn_id: turnId });
});

it('a tool that is left behind is logged with session and turn', async () => {
  const { lines, log } = recorded();
  const clock = manualClock();
  let begun = () => {};
  const running = new Promise<void>((resolve) => {
    begun = resolve;
  });
  const deaf = tool('deaf', {
    execute: () => {
      begun();
      return new Promise<never>(() => {});
    },
  });
  const scripted = scenario(planner({ tool_calls: [call('deaf', {})] }));
  const t = await startEngine({ log, clock, tools: [deaf], scenario: scripted });
  const session = await t.session();
  const turnId = await t.submit(session, 'go');
  await running;
  await cancelTurn(t.engine, session.id, turnId, null);
  clock.advance(30_000);
  await t.ended(turnId);
  const left = lines.filter(({ msg }) => msg.includes('left behind'));
  expect(left).toEqual([expect.objectContaining({ session_id: session.id, turn_id: turnId, what: 'deaf' })]);
});

it('a call without usage, and one without a price, are logged with session and turn', async () => {
  const fake = await startStrictFake(() => ({ text: 'fine', usage: null }));
  const limits = 'capabilities: { max_context_tokens: 200000, max_output_tokens: 8192 }';
  const registry = registryAt(fake, `  openai:nope: { aliases: [nope], ${limits} }\n`);
  const server = await startReal({ folder: tempFolder(), registry });
  const session = await server.session(tempFolder(), 'nope');
  const { id } = await server.turn(session, 'go');
  const said = server.log.filter(({ msg }) => /^no price for this model|reports no usage/.test(msg));
  expect(said).toHaveLength(2);
  for (const line of said) expect(line, line.msg).toMatchObject({ level: 'warn', session_id: session, turn_id: id });
});

it('a request that fails by a fault of ours is logged with the session and the turn of its path', async () => {
  const { lines, log } = recorded();
  const server = await startServer({ log });
  const session = await server.session();
  const { turns } = server.engine.store;
  const broken = { ...server.engine.store, turns: { ...turns, view: () => Promise.reject(new Error('no')) } };
  Object.assign(server.engine, { store: broken });
  const turn = server.engine.ids.turn();
  expect((await server.call('GET', `/sessions/${session.id}/turns/${turn}`)).status).toBe(500);
  const [line] = lines.filter(({ msg }) => msg === 'request failed');
  expect(line).toMatchObject({ level: 'error', session_id: session.id, turn_id: turn });
});
