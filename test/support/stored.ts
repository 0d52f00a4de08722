// What the database holds of a session, read through the store's own reads.
import type { AnyEvent } from '#protocol/event.ts';
import type { ToolResultBlock } from '#protocol/message.ts';
import type { TestEngine } from './engine.ts';

/** Every event of the session and its workers, in order. */
export async function storedEvents(t: TestEngine, sessionId: string): Promise<AnyEvent[]> {
  const query = { session_id: sessionId, include_workers: true, types: null, after: null, until: null, limit: 10_000 };
  return [...(await t.engine.store.events.list(query)).rows];
}

export async function turnOf(t: TestEngine, sessionId: string, turnId: string) {
  return (await t.engine.store.turns.view(sessionId, turnId))!;
}

/** What the session's model was given back for its tool calls, in order. */
export async function resultsOf(t: TestEngine, sessionId: string): Promise<ToolResultBlock[]> {
  const history = await t.engine.store.messages.history(sessionId as never);
  return history.filter((m) => m.role === 'tool').map((m) => m.content[0] as ToolResultBlock);
}

/** The line that names the worker of a result: it holds an id and a time (20 §3). */
const WORKER_LINE = /(^|\n)\[worker sess_[^\n]*\](?=\n|$)/g;
export const withoutWorkerLine = (text: string) => text.replace(WORKER_LINE, '').replace(/^\n/, '');

/** The text of a result, without the line that names its worker. */
export const textOf = (block: ToolResultBlock) =>
  block.content
    .map((b) => (b.type === 'text' ? withoutWorkerLine(b.text) : ''))
    .filter((text, at) => text !== '' || at === 0)
    .join('\n');
