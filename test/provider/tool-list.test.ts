// The tools of a request as bytes, which most requests share (11.5).
import { expect, it } from 'vitest';
import { cacheToolList } from '#models/wire/encode-history.ts';
import type { WireTool } from '#protocol/model-call.ts';

const tool = (name: string, description = ''): WireTool => ({ name, description, input_schema: { type: 'object' } });
const [READ, WRITE] = [tool('read'), tool('write', 'half of a pair: \ud83d')];

function openList() {
  let written = 0;
  const list = cacheToolList(({ name, description }) => {
    written += 1;
    return { name, description };
  });
  return { list, count: () => written };
}

it('a list of the same tools is written once, whatever array holds it', () => {
  const { list, count } = openList();
  const first = list([READ, WRITE]);
  expect(JSON.parse(String(first))).toEqual([
    { name: 'read', description: '' },
    { name: 'write', description: 'half of a pair: \ufffd' },
  ]);
  expect(list([READ, WRITE])).toBe(first);
  expect(count()).toBe(2);
});

it('other tools, another order and a part of the tools are other lists', () => {
  const { list } = openList();
  const names = (tools: readonly WireTool[]) =>
    (JSON.parse(String(list(tools))) as readonly { readonly name: string }[]).map(({ name }) => name);
  for (const tools of [[READ, WRITE], [WRITE, READ], [READ], [tool('read'), WRITE], [READ, WRITE]])
    expect(names(tools)).toEqual(tools.map(({ name }) => name));
});

it('lists beyond the newest sixteen are forgotten', () => {
  const { list, count } = openList();
  const kept = list([READ]);
  for (let i = 0; i < 15; i += 1) list([tool(`${i}`)]);
  expect(list([READ])).toBe(kept);
  list([tool('one more')]);
  expect(count()).toBe(17);
  expect(list([READ])).not.toBe(kept);
});
