// A background worker in an editor: its call runs on until the worker has ended (20 §9, 19 §4).
import type { SessionUpdate } from '@agentclientprotocol/sdk';
import { expect, it } from 'vitest';
import { createUpdates } from '#acp/editor-updates.ts';
import type { StreamEvent } from '#client/client.ts';

const SESSION = 'sess_1';
const event = (type: string, payload: object) => ({ type, session_id: SESSION, payload }) as unknown as StreamEvent;
const message = (role: string, content: object[], metadata: object = {}) =>
  event('message.appended', {
    message: {
      id: '01',
      session_id: SESSION,
      role,
      content,
      metadata: { status: 'complete', model: null, usage: null, ...metadata },
    },
  });

async function statuses(background: boolean, end: 'delegate.completed' | 'delegate.failed'): Promise<unknown[]> {
  const sent: SessionUpdate[] = [];
  const send = async (update: SessionUpdate) => void sent.push(update);
  const readChangedFiles = async () => [];
  const updates = createUpdates({ session: SESSION, cwd: '/', send, readChangedFiles, getContextWindow: () => 1 });
  const call = { tool_use_id: 'tu_1', tool_name: 'delegate' };
  await updates.event(event('tool.use_start', call));
  await updates.event(event('tool.use_end', { tool_use_id: 'tu_1', final_input: { task: 'look', background } }));
  await updates.event(event('tool.called', { ...call, side_effects: 'execute' }));
  const opened = { tier: 'fast', resolved_model: null, dropped_tools: [], allowed_tool_count: null, worker_name: null };
  await updates.event(event('delegate.started', { tool_use_id: 'tu_1', worker_session_id: 'sess_2', ...opened }));
  await updates.event(event('tool.completed', { tool_use_id: 'tu_1', success: true }));
  const result = { type: 'tool_result', tool_use_id: 'tu_1', content: [{ type: 'text', text: 'x' }], is_error: false };
  await updates.event(message('tool', [result], { parent_tool_use_id: 'tu_1' }));
  sent.push({ sessionUpdate: 'plan', entries: [] });
  await updates.event(event(end, { tool_use_id: 'tu_1' }));
  return sent.flatMap((update) => {
    if (update.sessionUpdate === 'plan') return ['answered'];
    return 'status' in update && update.status ? [update.status] : [];
  });
}

it('ends with its worker, as it ended; a call in the foreground ends with its answer', async () => {
  expect(await statuses(true, 'delegate.completed')).toEqual(['pending', 'in_progress', 'answered', 'completed']);
  expect(await statuses(true, 'delegate.failed')).toEqual(['pending', 'in_progress', 'answered', 'failed']);
  expect(await statuses(false, 'delegate.completed')).toEqual(['pending', 'in_progress', 'completed', 'answered']);
});
