// Answers of our own sessions that break off before their counts: what is booked for them stays within the reservation (14 §2).
import { expect, test } from 'vitest';
import type { LlmCallCompleted } from '#protocol/event/turn-events.ts';
import { limitFor, toPusd } from '#protocol/money.ts';
import { tempFolder } from '../support/engine.ts';
import { type GatewayWorld, startGateway } from './gateway/world.ts';

const event = (data: object) => `data: ${JSON.stringify(data)}\n\n`;
const message = { type: 'message', id: 'm', model: 'claude-opus-4-7', content: [] };
/** A stream that ends before its counts. */
const cut = (text: string) =>
  [
    event({ type: 'message_start', message }),
    event({ type: 'content_block_start', index: 0, content_block: { type: 'text', text: '' } }),
    event({ type: 'content_block_delta', index: 0, delta: { type: 'text_delta', text } }),
  ].join('');

async function open(world: GatewayWorld, max_cost_usd: string): Promise<string> {
  const rest = { max_cost_usd, on_reached: 'stop' };
  return world.server.session(tempFolder(), 'anthropic:claude-opus-4-7', rest);
}

// Promise 22.13: an estimate of an answer or of a prompt is never above what was reserved for it.
test('the estimate of an answer is never above its bound, however many characters came', async () => {
  // A token may stand for far more than four characters.
  const world = await startGateway(() => ({ raw: cut(' '.repeat(400_000)) }));
  const { cost_ceiling_usd } = await world.server.client.estimateTurn(await open(world, '9'), { content: 'hi' });
  const session = await open(world, limitFor(toPusd(cost_ceiling_usd)));
  const turn = await world.server.turn(session, 'hi');
  expect(turn.status).toBe('failed');
  const { payload } = await world.server.event('llm.call_completed', (one) => one.session_id === session);
  expect(payload).toMatchObject({ output_tokens: 4096, usage_estimated: true });
  const { cost_so_far_usd, budget } = await world.server.client.getSession(session);
  expect(toPusd(cost_so_far_usd)).toBeLessThanOrEqual(toPusd(cost_ceiling_usd));
  expect(budget).toMatchObject({ reserved_usd: '0' });
});

test('the estimate of a prompt is never above what was reserved for it, where the provider has counted it before', async () => {
  const usage = { input_tokens: 500, output_tokens: 1 };
  const whole = [
    event({ type: 'message_start', message: { ...message, usage } }),
    event({ type: 'content_block_start', index: 0, content_block: { type: 'text', text: 'ok' } }),
    event({ type: 'message_delta', delta: { stop_reason: 'end_turn' }, usage }),
    event({ type: 'message_stop' }),
  ].join('');
  let answers = 0;
  const world = await startGateway(() => {
    answers += 1;
    return { raw: answers === 1 ? whole : cut('x') };
  });
  const session = await open(world, '20');
  expect((await world.server.turn(session, `x${' '.repeat(400_000)}`)).status).toBe('completed');
  const { cost_ceiling_usd } = await world.server.client.estimateTurn(session, { content: 'again' });
  await world.server.turn(session, 'again');
  const again = await world.server.event(
    'llm.call_completed',
    ({ payload }) => (payload as LlmCallCompleted).usage_estimated,
  );
  expect(toPusd((again.payload as LlmCallCompleted).cost_usd)).toBeLessThanOrEqual(toPusd(cost_ceiling_usd));
});
