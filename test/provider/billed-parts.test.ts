// What an answer shows of its bill is read whatever it holds: no value throws, none makes a call cheaper (08 §12).
import { describe, expect, it } from 'vitest';
import { readMessagesUsage } from '#models/wire/anthropic-stream.ts';
import { emptyUsage } from '#models/wire/assembly.ts';
import { emptyNotes, readChatBill, toBill } from '#models/wire/billed-parts.ts';

function readUsage(...usages: readonly object[]) {
  const reading = { usage: emptyUsage(), bill: emptyNotes() };
  for (const usage of usages) readMessagesUsage(usage, reading, false);
  return { usage: reading.usage, bill: toBill(reading.bill) };
}

const round = { type: 'message', input_tokens: 10, output_tokens: 2 };

describe('the bill that an answer reports', () => {
  it('adds up more rounds than are kept, also after fewer', () => {
    const iterations = Array.from({ length: 1001 }, () => round);
    const few = { ...round, iterations: [round, round] };
    const { usage, bill } = readUsage(few, { ...round, iterations });
    expect(usage).toMatchObject({ input: 10_010, output: 2002 });
    expect(bill).toMatchObject({ rounds_unknown: true, rounds: [{ usage: { input: 10_010 } }] });
  });

  it.each([Number.MAX_SAFE_INTEGER, 1001, -1, 1.5, 1e308, '3', [], {}])(
    'does not believe that a tool was used %s times',
    (count) => {
      const { bill } = readUsage({ ...round, server_tool_use: { web_search_requests: count } });
      expect([...bill!.uses]).toEqual([['other', 1]]);
    },
  );

  it.each<unknown>([null, {}, [], { toString: null, valueOf: null }, 'a', 1e308])(
    'reads an executed tool with index %j',
    (index) => {
      const notes = emptyNotes();
      readChatBill({ choices: [{ delta: { executed_tools: [{ index }] } }] }, 'delta', notes);
      expect(toBill(notes)?.uses.get('executed_tools')).toBe(1);
    },
  );
});
