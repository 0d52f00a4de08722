// Stored messages: what is refused, what pairs with what, and how history and pages are read (01 §6, 05 §3.4).
import { describe, expect, test } from 'vitest';
import { InvalidMessageError } from '#core/ports/journal-writer.ts';
import { plainMetadata, type StoredMessage } from '#protocol/message.ts';
import { UsageSchema } from '#protocol/usage.ts';
import { assistantMessage, toolCall, toolMessage } from '../../support/records.ts';
import { storedSession, storedToolUse, storedTurn } from './nouns.ts';
import type { OpenStore, World } from './world.ts';

const insert = (world: World, message: StoredMessage) =>
  world.journal.commit({ writes: [{ kind: 'message.insert', message }], emit: [] });

async function openTurn(world: World) {
  const session = await storedSession(world);
  return { session, turn: await storedTurn(world, session) };
}

export function messageSuite(openWorld: OpenStore): void {
  describe('messages', () => {
    // Promise 01.3: a message with several faults is refused with all of them, and no row is made.
    test('a complete answer without usage and with an image is refused with both violations, and no row is made', async () => {
      const world = await openWorld();
      const { turn } = await openTurn(world);
      const image = {
        type: 'image' as const,
        source: { kind: 'base64' as const, data: 'AA==' },
        media_type: 'image/png',
      };
      const message = assistantMessage(world, turn, [image]);
      const before = await world.count('messages');
      const refused = insert(world, { ...message, metadata: { ...message.metadata, usage: null } });
      await expect(refused).rejects.toThrow(InvalidMessageError);
      await expect(refused).rejects.toMatchObject({
        violations: [expect.stringContaining('image'), expect.stringContaining('usage')],
      });
      expect(await world.count('messages')).toBe(before);
    });

    test('a message in mid-stream is never stored', async () => {
      const world = await openWorld();
      const { turn } = await openTurn(world);
      const message = assistantMessage(world, turn);
      const partial = { ...message, metadata: { ...message.metadata, status: 'partial' as const } };
      await expect(insert(world, partial)).rejects.toThrow(InvalidMessageError);
    });

    // Promise 01.4: a tool message must hold one result for an earlier call of its own session.
    test('a tool message with two blocks, without its call, or for a call of another session is refused, no row', async () => {
      const world = await openWorld();
      const { turn } = await openTurn(world);
      const call = await storedToolUse(world, turn);
      const elsewhere = await openTurn(world);
      const foreign = await storedToolUse(world, elsewhere.turn);
      const before = await world.count('messages');
      const good = toolMessage(world, turn, call.id);
      const broken = [
        { ...good, content: [...good.content, ...good.content] },
        { ...good, metadata: plainMetadata() },
        toolMessage(world, turn, foreign.id),
        toolMessage(world, turn, world.ids.toolUse()),
        // Older than the answer it would belong to.
        { ...good, id: '0'.repeat(26) as StoredMessage['id'] },
      ];
      for (const message of broken) await expect(insert(world, message)).rejects.toThrow(InvalidMessageError);
      expect(await world.count('messages')).toBe(before);
      await insert(world, good);
      expect(await world.store.turns.toolCall(call.id)).toMatchObject({ answered: true });
    });

    // Promise 01.5: a tool call has one result.
    test('one call has one result: the second is refused, by the journal and by the unique index', async () => {
      const world = await openWorld();
      const { turn } = await openTurn(world);
      const first = await storedToolUse(world, turn);
      const second = await storedToolUse(world, turn);
      const answer = toolMessage(world, turn, first.id);
      await insert(world, answer);
      const again = insert(world, toolMessage(world, turn, first.id));
      await expect(again).rejects.toMatchObject({ violations: [expect.stringContaining('already has a result')] });
      await expect(
        world.execute('UPDATE tool_calls SET result_message_id = ? WHERE id = ?', answer.id, second.id),
      ).rejects.toThrow(/(UNIQUE|duplicate key).*tool_calls[._]result/);
    });

    test('a tool use id is unique in the whole database', async () => {
      const world = await openWorld();
      const { turn } = await openTurn(world);
      const { id } = await storedToolUse(world, turn);
      const elsewhere = await openTurn(world);
      const message = assistantMessage(world, elsewhere.turn, [{ type: 'tool_use', id, name: 'read_file', input: {} }]);
      await expect(
        world.journal.commit({
          writes: [
            { kind: 'message.insert', message },
            { kind: 'tool_call.insert', call: toolCall(world, message, id) },
          ],
          emit: [],
        }),
      ).rejects.toThrow(InvalidMessageError);
      expect((await world.store.messages.history(elsewhere.session.id)).map((m) => m.role)).toEqual(['user']);
    });

    test('a settled call keeps its result; it settles once', async () => {
      const world = await openWorld();
      const { turn } = await openTurn(world);
      const { id } = await storedToolUse(world, turn);
      const result = { type: 'tool_result' as const, tool_use_id: id, content: [], is_error: false };
      const settle = () =>
        world.journal.commit({
          writes: [{ kind: 'tool_call.settle', id, status: 'succeeded', result, at: world.time.now }],
          emit: [],
        });
      await settle();
      await expect(settle()).rejects.toMatchObject({ code: 'turn_closed' });
      expect(await world.store.turns.toolCalls(turn.id)).toMatchObject([
        { id, status: 'succeeded', result, answered: false },
      ]);
    });

    // Promise 01.26: an oversized provider_raw is stored as null with one warning.
    test('provider_raw over 64 KiB is stored as null with one warning; it is in the history of the engine and in no page', async () => {
      const world = await openWorld();
      const { session, turn } = await openTurn(world);
      await world.store.messages.history(session.id);
      const small = assistantMessage(world, turn, undefined, {
        provider_raw: { adapter: 'anthropic', secret: 'small' },
      });
      const large = assistantMessage(world, turn, undefined, {
        provider_raw: { adapter: 'anthropic', secret: 'x'.repeat(100_000) },
      });
      await insert(world, small);
      await insert(world, large);
      expect(world.logged).toEqual([
        expect.objectContaining({ level: 'warn', fields: expect.objectContaining({ message_id: large.id }) }),
      ]);
      const expected = [null, small.provider_raw, null];
      const raws = async (w: World) => (await w.store.messages.history(session.id)).map((m) => m.provider_raw);
      expect(await raws(world)).toEqual(expected);
      expect(await raws(await world.reopen())).toEqual(expected);
    });

    // Promise 01.26: provider_raw never leaves the engine.
    test('no read for people carries provider_raw', async () => {
      const world = await openWorld();
      const { session, turn } = await openTurn(world);
      const message = assistantMessage(world, turn, undefined, {
        provider_raw: { adapter: 'anthropic', secret: 'raw' },
      });
      await insert(world, message);
      const reads = [
        await world.store.messages.get(message.id),
        await world.store.messages.page(session.id, { before: null, after: null, limit: 10 }),
        await world.store.snapshot(session.id, true),
        await world.store.turns.view(session.id, turn.id),
      ];
      expect(JSON.stringify(reads)).not.toMatch(/provider_raw|"raw"/);
    });

    test('metadata is stored without what a missing field stands for, and read whole; that of older versions too', async () => {
      const world = await openWorld();
      const { session, turn } = await openTurn(world);
      const model = 'a:b';
      const answer = assistantMessage(world, turn);
      const usage = UsageSchema.parse({ ...answer.metadata.usage!, output_tokens: 0, priced: true });
      const routing = {
        mode: 'rule' as const,
        chosen_model: model,
        reason: 'because',
        rule_name: null,
        confidence: null,
        alternatives_considered: [],
      };
      const message = { ...answer, metadata: { ...answer.metadata, model, usage, routing } };
      await insert(world, message);
      const rows = await world.rows('SELECT metadata_json FROM messages ORDER BY id');
      const [plain, stored] = rows.map((row) => JSON.parse(String(row.metadata_json)));
      expect(plain).toEqual({});
      expect(stored.routing).toEqual({ mode: 'rule', reason: 'because' });
      expect(Object.keys(stored)).not.toContain('status');
      expect(Object.values(stored.usage).filter((value) => value === 0 || value === false)).toEqual([]);

      const { provider_raw: _, ...wire } = message;
      const read = async () => {
        const fresh = await world.reopen();
        expect((await fresh.store.messages.history(session.id)).at(-1)).toEqual(message);
        expect(JSON.stringify(await fresh.store.messages.get(message.id))).toBe(JSON.stringify(wire));
        return fresh;
      };
      const fresh = await read();
      const before = JSON.stringify(message.metadata);
      await fresh.execute(`UPDATE messages SET metadata_json = '${before}' WHERE role = 'assistant'`);
      expect((await fresh.store.messages.get(message.id))?.metadata).toEqual(message.metadata);
    });

    test('history: what was kept in memory equals what is read afresh, and an array once handed out does not change', async () => {
      const world = await openWorld();
      const { session, turn } = await openTurn(world);
      const before = await world.store.messages.history(session.id);
      await insert(
        world,
        assistantMessage(world, turn, [
          { type: 'thinking', text: 'hm', signature: 'sig' },
          { type: 'redacted_thinking', data: 'blob' },
          { type: 'text', text: 'ünïcode \u0000 "quotes"' },
        ]),
      );
      const kept = await world.store.messages.history(session.id);
      expect(before).toHaveLength(1);
      expect(kept).toHaveLength(2);
      expect(await (await world.reopen()).store.messages.history(session.id)).toEqual(kept);
    });

    test('a refused batch leaves no message in the kept history', async () => {
      const world = await openWorld();
      const { session, turn } = await openTurn(world);
      await world.store.messages.history(session.id);
      const results = await Promise.allSettled([
        world.journal.commit({
          writes: [
            { kind: 'message.insert', message: assistantMessage(world, turn) },
            { kind: 'session.insert', session },
          ],
          emit: [],
        }),
        insert(world, assistantMessage(world, turn)),
      ]);
      expect(results.map((r) => r.status)).toEqual(['rejected', 'fulfilled']);
      expect(await world.store.messages.history(session.id)).toHaveLength(2);
    });

    // Promise 05.15: history pages meet without gap or repetition.
    test('250 messages walked by before, and by after from the first, are each returned once, ascending', async () => {
      const world = await openWorld();
      const { session, turn } = await openTurn(world);
      await world.journal.commit({
        writes: Array.from(
          { length: 249 },
          () => ({ kind: 'message.insert', message: assistantMessage(world, turn) }) as const,
        ),
        emit: [],
      });
      const all = (await world.store.messages.history(session.id)).map((m) => m.id);
      expect(all).toHaveLength(250);
      const page = (before: string | null, after: string | null, limit = 40) =>
        world.store.messages.page(session.id, { before, after, limit });

      const back: string[] = [];
      for (let before: string | null = null, more = true; more; ) {
        const { messages, has_more_before, has_more_after } = await page(before, null);
        expect(has_more_after).toBe(before !== null);
        back.unshift(...messages.map((m) => m.id));
        before = messages[0]?.id ?? null;
        more = has_more_before;
      }
      expect(back).toEqual(all);

      const forth = all.slice(0, 1);
      for (let more = true; more; ) {
        const { messages, has_more_before, has_more_after } = await page(null, forth.at(-1) ?? null);
        expect(has_more_before).toBe(true);
        forth.push(...messages.map((m) => m.id));
        more = has_more_after;
      }
      expect(forth).toEqual(all);

      const between = await page(all[9] ?? null, all[4] ?? null);
      expect(between.messages.map((m) => m.id)).toEqual(all.slice(5, 9));
      expect(between).toMatchObject({ has_more_before: true, has_more_after: true });
      expect(await page(all[0] ?? null, null)).toEqual({ messages: [], has_more_before: false, has_more_after: true });
      expect(await page(null, all[249] ?? null)).toEqual({
        messages: [],
        has_more_before: true,
        has_more_after: false,
      });
    });
  });
}
