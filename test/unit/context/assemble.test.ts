// What of the stored history reaches a provider (10 §6).
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { MISSING_RESULT_TEXT, requestMessages } from '#core/policy/context/assemble.ts';
import { messageViolations } from '#core/policy/journal/message-rules.ts';
import type { StoredMessage } from '#protocol/message.ts';
import { message, text, toolResult, toolUse, toolUseId } from '../../support/messages.ts';

const user = (n: number) => message(n, 'user', [text(`question ${n}`)]);
const calls = (n: number, ...ids: number[]) =>
  message(
    n,
    'assistant',
    ids.map((id) => toolUse(id)),
  );
const result = (n: number, id: number) => message(n, 'tool', [toolResult(id)]);

describe('requestMessages', () => {
  it('hands over a well-formed history as it is, without a copy', () => {
    const history = [
      user(1),
      calls(2, 1, 2),
      result(3, 1),
      result(4, 2),
      message(5, 'assistant', [text('done')]),
      user(6),
    ];
    const { messages, missing } = requestMessages(history);
    expect(messages).toBe(history);
    expect(missing).toEqual([]);
  });

  it('sends complete messages only, and no result whose call is not sent', () => {
    const cut = message(2, 'assistant', [text('hal'), toolUse(1)], { status: 'cancelled' });
    const broken = message(4, 'assistant', [text('x')], { status: 'error' });
    const history = [user(1), cut, result(3, 1), broken, user(5)];
    const { messages, missing } = requestMessages(history);
    expect(messages).toEqual([user(1), user(5)]);
    expect(missing).toEqual([]);
  });

  it('answers a call without result by an error result before other content, and names it', () => {
    const history = [user(1), calls(2, 1, 2, 3), result(3, 2), user(4)];
    const { messages, missing } = requestMessages(history);
    expect(missing).toEqual([toolUseId(1), toolUseId(3)]);
    expect(messages.map((m) => m.role)).toEqual(['user', 'assistant', 'tool', 'tool', 'tool', 'user']);
    expect(messages.map((m) => m.metadata.parent_tool_use_id)).toEqual([
      null,
      null,
      toolUseId(2),
      toolUseId(1),
      toolUseId(3),
      null,
    ]);
    expect(messages[3]!.content).toEqual([
      {
        type: 'tool_result',
        tool_use_id: toolUseId(1),
        content: [{ type: 'text', text: MISSING_RESULT_TEXT }],
        is_error: true,
      },
    ]);
    expect(messages[3]!.provider_raw).toBeNull();
    expect(history).toHaveLength(4);
  });

  it('fills a call that ends the history, and leaves out a second or a late result', () => {
    expect(requestMessages([user(1), calls(2, 1)]).missing).toEqual([toolUseId(1)]);
    const twice = requestMessages([user(1), calls(2, 1), result(3, 1), result(4, 1), user(5), result(6, 1)]);
    expect(twice.messages.map((m) => m.id)).toEqual([1, 2, 3, 5].map((n) => user(n).id));
    expect(twice.missing).toEqual([]);
  });

  it('gives every sent call exactly one result right after it, whatever the history looks like', () => {
    const anyMessage = fc.oneof(
      fc.constant('user' as const),
      fc.record({ calls: fc.uniqueArray(fc.integer({ min: 1, max: 6 }), { maxLength: 3 }), complete: fc.boolean() }),
      fc.integer({ min: 1, max: 6 }),
    );
    fc.assert(
      fc.property(fc.array(anyMessage, { maxLength: 14 }), (plan) => {
        const used = new Set<number>();
        const history = plan.flatMap((step, i): StoredMessage[] => {
          if (step === 'user') return [user(i)];
          if (typeof step === 'number') return [result(i, step)];
          const fresh = step.calls.filter((id) => !used.has(id));
          for (const id of fresh) used.add(id);
          const status = step.complete ? 'complete' : 'cancelled';
          return [message(i, 'assistant', [text('x'), ...fresh.map((id) => toolUse(id))], { status })];
        });
        const { messages } = requestMessages(history);
        let open: string[] = [];
        for (const m of messages) {
          expect(m.metadata.status).toBe('complete');
          expect(messageViolations(m)).toEqual([]);
          const block = m.content[0]!;
          if (block.type === 'tool_result') {
            expect(open).toContain(block.tool_use_id);
            open = open.filter((id) => id !== block.tool_use_id);
          } else {
            expect(open).toEqual([]);
            open = m.content.flatMap((b) => (b.type === 'tool_use' ? [b.id] : []));
          }
        }
        expect(open).toEqual([]);
      }),
    );
  });
});
