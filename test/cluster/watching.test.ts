// Watching a tree from a node that does not own it: what is committed once each and in order, what is said as it is said (16 §6).
import { createHmac } from 'node:crypto';
import { isDeepStrictEqual } from 'node:util';
import { describe, expect, onTestFinished, test } from 'vitest';
import { systemClock } from '#protocol/clock.ts';
import type { Delta } from '#protocol/delta.ts';
import { withoutRaw } from '#protocol/message.ts';
import { buildPlainCost, NO_TOKENS, type Usage } from '#protocol/usage.ts';
import { createHmacFor, createSeals } from '#store/bus/nats/frame.ts';
import { openLink } from '#store/bus/nats/link.ts';
import { frameKey } from '#store/cluster/tree-claims.ts';
import { released } from '../store/postgres/world.ts';
import { storedSession, storedTurn, storedWorker } from '../store/suite/nouns.ts';
import { type LogLine, recordingLogger } from '../store/suite/world.ts';
import { manualClock } from '../support/manual-clock.ts';
import { startProxy } from '../support/proxy.ts';
import { assistantMessage } from '../support/records.ts';
import { natsService, postgresService } from '../support/services.ts';
import { until } from '../support/until.ts';
import { emptySchema, note, said, start, stranger, text, textAfter, type WatchNode, watchNode } from './watching.ts';

const postgres = await postgresService();
const nats = await natsService();
const missing = [postgres.missing, nats.missing].filter((each) => each !== '').join(', ');
const USAGE: Usage = { ...NO_TOKENS, ...buildPlainCost('0'), pricing_version: 'A', priced: true, latency_ms: 1 };

async function twoNodes(url: string | null = nats.url) {
  const schema = await emptySchema(postgres.url!);
  const a = await watchNode(schema, 'a', { nats: nats.url });
  const b = await watchNode(schema, 'b', { nats: url });
  return { schema, a, b };
}
async function storedIds(node: WatchNode, after = ''): Promise<string[]> {
  return (await node.eventsAsWritten()).sort().filter((id) => id > after);
}
const complete = (id: string, content: string): Delta => ({
  type: 'message.complete',
  payload: {
    message_id: id,
    stop_reason: 'end_turn',
    final_content: [{ type: 'text', text: content }],
    usage: USAGE,
    latency_ms: 1,
  },
});

describe.skipIf(missing !== '')(`watching from another node${missing && `, skipped: ${missing}`}`, () => {
  // Promise 16.3: a watcher on another node is told of each commit once, in order, and of deltas as they were said.
  test('events come once each in the order of their commits, deltas as they were said, with no request to the owner', async () => {
    const { a, b } = await twoNodes();
    const session = await storedSession(a);
    await a.journal.commit({ emit: [note(session, 'before')] });
    const [here, there] = [await a.watch(session), await b.watch(session)];
    const id = a.ids.message();
    a.journal.publishDelta(start(session, id));
    const chunks = Array.from({ length: 50 }, (_, i) => `${i} `);
    for (const chunk of chunks) a.journal.publishDelta(text(session, id, chunk));
    for (let i = 0; i < 20; i++)
      await a.journal.commit({ emit: [note(session, `${i}`), note(session, `${i}, second`)] });
    await a.journal.commit({ emit: [said(session, complete(id, chunks.join(''))), note(session, 'last')] });
    await until(() => there.ids().length === 41);
    expect(there.frames.slice(1)).toEqual(here.frames.slice(1));
    expect(there.ids()).toEqual((await storedIds(a)).slice(1));
    expect(textAfter(there.deltas(id))).toBe(chunks.join(''));
    expect(there.deltas(id).at(-1)?.type).toBe('message.complete');
  });

  // Promise 16.11: who joins in mid-message elsewhere holds all of it.
  test('who joins in mid-message is told what was said before, whatever its length, and what follows adds up', async () => {
    const { a, b } = await twoNodes();
    const session = await storedSession(a);
    await a.journal.commit({ emit: [note(session, 'before')] });
    const id = a.ids.message();
    const before = 'Grüße 🍋 "\\\n\u0001'.repeat(100_000);
    a.journal.publishDelta(start(session, id));
    a.journal.publishDelta(text(session, id, before));
    const there = await b.watch(session);
    await until(() => textAfter(there.deltas(id)).length >= before.length);
    // One that joins where the node knows it already asks nobody.
    const second = await b.watch(session);
    for (const chunk of ['and ', 'more']) a.journal.publishDelta(text(session, id, chunk));
    await a.journal.commit({ emit: [said(session, complete(id, `${before}and more`)), note(session, 'last')] });
    for (const each of [there, second]) {
      await until(() => each.ids().length === 1);
      expect(textAfter(each.deltas(id))).toBe(`${before}and more`);
      expect(each.deltas(id).filter(({ type }) => type === 'message.start')).toHaveLength(1);
    }
  });

  // Promise 16.11: a message of 2 MiB reaches watchers elsewhere.
  test('a message of 2 MiB and an input of one arrive whole, though no frame may be so long', async () => {
    const { a, b } = await twoNodes();
    const session = await storedSession(a);
    const turn = await storedTurn(a, session);
    await a.journal.commit({ emit: [note(session, 'before')] });
    const there = await b.watch(session);
    const large = '🍋 lemon '.repeat(191_000);
    const message = assistantMessage(a, turn, [{ type: 'text', text: large }]);
    const wire = withoutRaw(message);
    const tool = { message_id: message.id, content_block_index: 1, tool_use_id: a.ids.toolUse() };
    a.journal.publishDelta(start(session, message.id));
    a.journal.publishDelta(text(session, message.id, large));
    a.journal.publishDelta(said(session, { type: 'tool.use_start', payload: { ...tool, tool_name: 'write_file' } }));
    const input = { text: large.slice(0, large.length / 2) };
    const partial_json = JSON.stringify(input);
    a.journal.publishDelta(said(session, { type: 'tool.use_input_delta', payload: { ...tool, partial_json } }));
    const end = { ...tool, final_input: input, input_error: null };
    a.journal.publishDelta(said(session, { type: 'tool.use_end', payload: end }));
    await a.journal.commit({
      writes: [{ kind: 'message.insert', message }],
      emit: [
        said(session, complete(message.id, large)),
        said(session, { type: 'message.appended', payload: { message: wire } }),
        note(session, 'last'),
      ],
    });
    // What is committed may be found in the store before its frame is here.
    const told = (of: string) => [...there.deltas(message.id), ...there.deltas()].some(({ type }) => type === of);
    await until(() => there.ids().length === 1 && told('message.complete') && told('message.appended'));
    const deltas = there.deltas(message.id);
    expect(textAfter(deltas) === large).toBe(true);
    const ended = deltas.find(({ type }) => type === 'tool.use_end')?.payload as typeof end;
    expect(ended.final_input.text === input.text).toBe(true);
    const completed = deltas.find(({ type }) => type === 'message.complete')?.payload as { final_content: unknown };
    expect(JSON.stringify(completed.final_content) === JSON.stringify(message.content)).toBe(true);
    const appended = there.deltas().find(({ type }) => type === 'message.appended');
    expect(isDeepStrictEqual(appended?.payload, { message: wire })).toBe(true);
  });

  // Promise 16.8: a node cut off from NATS goes on telling what is committed elsewhere.
  test('cut off from NATS, events go on coming from the database; a message that was cut is made whole or ended', async () => {
    const schema = await emptySchema(postgres.url!);
    const at = new URL(nats.url!);
    const proxy = await startProxy({ host: at.hostname, port: Number(at.port) });
    const a = await watchNode(schema, 'a', { nats: nats.url });
    const b = await watchNode(schema, 'b', { nats: `nats://127.0.0.1:${proxy.port}` });
    const session = await storedSession(a);
    const turn = await storedTurn(a, session);
    await a.journal.commit({ emit: [note(session, 'before')] });
    const there = await b.watch(session);
    const [kept, lost] = [assistantMessage(a, turn), a.ids.message()];
    a.journal.publishDelta(start(session, kept.id));
    a.journal.publishDelta(text(session, kept.id, 'heard'));
    await until(() => textAfter(there.deltas(kept.id)) === 'heard');

    proxy.cut();
    a.journal.publishDelta(text(session, kept.id, ', not heard'));
    await a.journal.commit({
      writes: [{ kind: 'message.insert', message: { ...kept, content: [{ type: 'text', text: 'heard, not heard' }] } }],
      emit: [said(session, complete(kept.id, 'heard, not heard')), note(session, 'while cut')],
    });
    await until(() => there.ids().length === 1);
    await until(() => there.deltas(kept.id).at(-1)?.type === 'message.complete');
    expect(there.deltas(kept.id).at(-1)?.payload).toMatchObject({ final_content: [{ text: 'heard, not heard' }] });

    a.journal.publishDelta(start(session, lost));
    a.journal.publishDelta(text(session, lost, 'before the mend'));
    proxy.mend();
    await until(() => textAfter(there.deltas(lost)) === 'before the mend');
    a.journal.publishDelta(text(session, lost, ', and after'));
    await a.journal.commit({
      emit: [said(session, complete(lost, 'before the mend, and after')), note(session, 'mended')],
    });
    await until(() => there.ids().length === 2);
    expect(textAfter(there.deltas(lost))).toBe('before the mend, and after');
    expect(there.ids()).toEqual((await storedIds(a)).slice(1));
  });

  // Promise 16.7: without nats.url one reading a second finds what other nodes committed.
  test('without NATS one reading a second finds what was committed, for all trees in one query', async () => {
    const schema = await emptySchema(postgres.url!);
    const clock = manualClock();
    const a = await watchNode(schema, 'a', { nats: null });
    const b = await watchNode(schema, 'b', { nats: null, clock });
    const sessions = await Promise.all(Array.from({ length: 5 }, () => storedSession(a)));
    for (const session of sessions) await a.journal.commit({ emit: [note(session, 'before')] });
    const there = await Promise.all(sessions.map((session) => b.watch(session)));
    const before = b.readings();
    for (let round = 1; round <= 3; round++) {
      for (const session of sessions)
        await a.journal.commit({ emit: [note(session, `${round}`), note(session, 'and')] });
      expect(there.map((each) => each.ids().length)).toEqual(sessions.map(() => 2 * (round - 1)));
      clock.advance(1000);
      await until(() => there.every((each) => each.ids().length === 2 * round));
    }
    expect(b.readings() - before).toBe(3);
    for (const each of there) expect(each.ids()).toEqual([...each.ids()].sort());
  });

  // Promise 16.8: frames that an owner could not send are noticed and read.
  test('frames that were lost are noticed at the next one, or at the next reading', async () => {
    const schema = await emptySchema(postgres.url!);
    const at = new URL(nats.url!);
    const clock = manualClock();
    const proxy = await startProxy({ host: at.hostname, port: Number(at.port) });
    const a = await watchNode(schema, 'a', { nats: `nats://127.0.0.1:${proxy.port}` });
    const b = await watchNode(schema, 'b', { nats: nats.url, clock });
    const session = await storedSession(a);
    const turn = await storedTurn(a, session);
    await a.journal.commit({ emit: [note(session, 'before')] });
    const there = await b.watch(session, { include_worker_sessions: true });
    const id = a.ids.message();
    a.journal.publishDelta(start(session, id));
    a.journal.publishDelta(text(session, id, 'one'));
    await until(() => textAfter(there.deltas(id)) === 'one');
    // The owner is cut off; the watcher knows nothing of it, and a worker begins meanwhile.
    proxy.cut();
    await until(() => !a.linked());
    const worker = await storedWorker(a, session, turn);
    await a.journal.commit({ emit: [note(session, 'lost'), note(worker, 'lost too')] });
    a.journal.publishDelta(text(session, id, ' two'));
    clock.advance(1000);
    await until(() => clock.pending(250) === 1);
    clock.advance(250);
    await until(() => there.ids().length === 2);

    await a.journal.commit({ emit: [note(worker, 'lost as well')] });
    proxy.mend();
    await until(() => a.linked());
    await a.journal.commit({ emit: [note(worker, 'heard'), said(worker, { ...complete(a.ids.message(), '') })] });
    await until(() => there.ids().length === 4);
    expect(there.ids()).toEqual((await storedIds(a)).slice(1));
    a.journal.publishDelta(text(session, id, ' three'));
    await until(() => textAfter(there.deltas(id)) === 'one two three');
    // Nothing is committed this time.
    proxy.cut();
    await until(() => !a.linked());
    a.journal.publishDelta(text(session, id, ' four'));
    const unheard = a.ids.message();
    a.journal.publishDelta(start(worker, unheard));
    a.journal.publishDelta(text(worker, unheard, 'begun'));
    proxy.mend();
    await until(() => a.linked());
    a.journal.publishDelta(text(worker, unheard, ' and told'));
    await until(() => textAfter(there.deltas(unheard)) === 'begun and told');
    expect(there.deltas(unheard)[0]?.type).toBe('message.start');
    a.journal.publishDelta(text(session, id, ' five'));
    await until(() => textAfter(there.deltas(id)) === 'one two three four five');
  });

  // Promise 16.3: a message that was begun is ended, also where its owner is gone.
  test('a message whose owner is gone ends with what it had, as soon as another node owns the tree', async () => {
    const schema = await emptySchema(postgres.url!);
    const a = await watchNode(schema, 'a', { nats: nats.url });
    const b = await watchNode(schema, 'b', { nats: nats.url });
    const c = await watchNode(schema, 'c', { nats: null });
    const session = await storedSession(a);
    await a.journal.commit({ emit: [note(session, 'before')] });
    const watchers = [await a.watch(session), await b.watch(session)];
    const id = a.ids.message();
    a.journal.publishDelta(start(session, id));
    a.journal.publishDelta(text(session, id, 'so far'));
    for (const each of watchers) await until(() => textAfter(each.deltas(id)) === 'so far');
    await a.trees.releaseAll();
    released(await c.trees.hold(session.id));
    a.journal.publishDelta(text(session, id, 'from the dead'));
    await c.journal.commit({ emit: [note(session, 'by another')] });
    for (const each of watchers) {
      await until(() => each.ids().length === 1 && each.deltas(id).at(-1)?.type === 'message.complete');
      expect(each.deltas(id).at(-1)?.payload).toMatchObject({
        stop_reason: 'error',
        final_content: [{ type: 'text', text: 'so far' }],
      });
      expect(textAfter(each.deltas(id))).toBe('so far');
    }
  });

  test('a purge elsewhere ends every stream of the tree', async () => {
    const { schema, a, b } = await twoNodes();
    const c = await watchNode(schema, 'c', { nats: null });
    const session = await storedSession(a);
    await a.journal.commit({ emit: [note(session, 'before')] });
    const watchers = [await b.watch(session), await c.watch(session)];
    expect(await a.journal.purge(session.id)).toBe(1);
    for (const each of watchers) await until(() => each.ended.length > 0);
    expect(watchers.map(({ ended }) => ended)).toEqual([['session_purged'], ['session_purged']]);
  });

  test('cursors are of the tree: on any node one below its mark or above its last event has expired, and one of another tree says nothing', async () => {
    const { a, b } = await twoNodes();
    const [session, other] = [await storedSession(a), await storedSession(a)];
    const [first] = await a.journal.commit({ emit: [note(session, 'first')] });
    a.time.now += 60_000;
    const [second] = await a.journal.commit({ emit: [note(session, 'second')] });
    const [elsewhere] = await a.journal.commit({ emit: [note(other, 'later than all')] });
    for (const node of [a, b]) {
      const there = await node.watch(session, { since: first!.id });
      expect(there.ids()).toEqual([second!.id]);
      await expect(node.watch(session, { since: elsewhere!.id })).rejects.toMatchObject({ code: 'cursor_expired' });
      const [ack] = (await node.watch(session)).frames;
      expect(ack.since >= second!.id && ack.since < elsewhere!.id).toBe(true);
    }
    const { rows_deleted } = await b.journal.prune(a.time.now, false);
    expect(rows_deleted).toBe(1);
    for (const node of [a, b]) {
      await expect(node.watch(session, { since: '0'.repeat(26) })).rejects.toMatchObject({
        code: 'cursor_expired',
      });
      expect((await node.watch(session, { since: first!.id })).ids()).toEqual([second!.id]);
      expect((await node.watch(other, { since: elsewhere!.id })).ids()).toEqual([]);
    }
  });
});

test('NATS that is not there is one line of the log, with its reason', async () => {
  const lines: LogLine[] = [];
  const log = recordingLogger(lines);
  const link = openLink({ url: 'nats://127.0.0.1:1', name: 'nobody', clock: systemClock, log });
  onTestFinished(() => link.close());
  await until(() => lines.length > 0);
  expect(lines).toEqual([
    {
      level: 'warn',
      fields: { reason: expect.stringMatching(/^\S.*$/) },
      message: 'NATS does not answer: events of trees on other nodes come from the database',
    },
  ]);
});

test('a seal is an HMAC-SHA-256, whatever the length of its key', () => {
  for (const length of [0, 1, 63, 64, 65, 200]) {
    const key = Buffer.alloc(length, 'k');
    const expected = createHmac('sha256', key).update('head').update('body').digest('hex');
    expect(createHmacFor(key)('head', Buffer.from('body')).toString('hex')).toBe(expected);
  }
});

describe.skipIf(missing !== '')(`frames of a stranger${missing && `, skipped: ${missing}`}`, () => {
  test('garbage, forgeries, frames of another epoch or tree and repeated ones change nothing that anybody sees', async () => {
    const { schema, a, b } = await twoNodes();
    const session = await storedSession(a);
    const other = await storedSession(a);
    await a.journal.commit({ emit: [note(session, 'before')] });
    await a.journal.commit({ emit: [note(other, 'before')] });
    const evil = await stranger(nats.url!);
    const heard: { subject: string; data: Uint8Array }[] = [];
    evil.subscribe(`${schema.name}.>`, { callback: (_error, { subject, data }) => void heard.push({ subject, data }) });
    await evil.flush();
    const there = await b.watch(session);
    const elsewhere = await b.watch(other);
    const id = a.ids.message();
    a.journal.publishDelta(start(session, id));
    await a.journal.commit({ emit: [note(session, 'true')] });
    await until(() => there.ids().length === 1 && heard.length > 2);

    const subject = `${schema.name}.tree.${session.id}`;
    const forged = `{"v":1,"epoch":1,"seq":4,"n":9,"kind":"commit","whole":true,"items":[]}`;
    const seals = createSeals(await frameKey(a.pool.send));
    const sent: (string | Uint8Array)[] = [
      '',
      'x',
      new Uint8Array(1024 * 1024 - 100),
      '['.repeat(300_000),
      forged,
      createSeals(Buffer.alloc(32)).seal(subject, forged),
      // What only a node can make: too deep, of the wrong form, of an owner that is gone.
      seals.seal(subject, `{"v":1,"items":${'['.repeat(100_000)}`),
      seals.seal(
        subject,
        '{"v":1,"epoch":1,"seq":1e999,"n":{},"kind":"commit","whole":true,"items":[{"event":{"id":"\\""}}]}',
      ),
      seals.seal(subject, forged.replace('"epoch":1', '"epoch":0')),
      seals.seal(`${schema.name}.tree.${other.id}`, forged),
      ...heard.map(({ data }) => data),
    ];
    for (const data of sent) for (const to of [subject, `${schema.name}.tree.${other.id}`]) evil.publish(to, data);
    for (const to of ['x', '', '>', session.id, 'a.b.c'])
      if (to !== '') attempt(() => evil.publish(`${schema.name}.say.${to}`, 'x'));
    await evil.flush();
    a.journal.publishDelta(text(session, id, 'said'));
    await a.journal.commit({ emit: [said(session, complete(id, 'said')), note(session, 'after')] });
    await a.journal.commit({ emit: [note(other, 'after')] });
    await until(() => there.ids().length === 2 && elsewhere.ids().length === 1);
    expect(textAfter(there.deltas(id))).toBe('said');
    expect(there.deltas(id).map(({ type }) => type)).toEqual(['message.start', 'text.delta', 'message.complete']);
    const stored = await storedIds(a);
    expect([...there.ids(), ...elsewhere.ids()].sort()).toEqual(stored.slice(2));
    expect(b.logged.filter(({ level }) => level === 'error')).toEqual([]);
  });

  test('of a tree that nobody watches here no frame is heard, and none is made without NATS', async () => {
    const { schema, a, b } = await twoNodes();
    const silent = await watchNode(schema, 'silent', { nats: null });
    const session = await storedSession(silent);
    const evil = await stranger(nats.url!);
    const heard: string[] = [];
    evil.subscribe('>', { callback: (_error, { subject }) => void heard.push(subject) });
    await evil.flush();
    await silent.journal.commit({ emit: [note(session, 'one')] });
    const loud = await storedSession(a);
    await a.journal.commit({ emit: [note(loud, 'one')] });
    await until(() => heard.some((subject) => subject.endsWith(loud.id)));
    expect(heard.filter((subject) => subject.endsWith(session.id))).toEqual([]);
    expect(b.published).toEqual([]);
  });
});

function attempt(step: () => void): void {
  try {
    step();
  } catch {
    // A subject that the library refuses by itself.
  }
}
