// A client's request as the parts of its prompt: equal keys mean equal bytes, and nothing is left uncounted (14 §2).
import { describe, expect, it } from 'vitest';
import { clientPrompt } from '#core/policy/gateway/client-prompt.ts';
import { readRequestFacts } from '#core/policy/gateway/request-facts.ts';
import { hashPromptChains, type Prompt, selectNewText } from '#core/policy/pricing/prompt-tokens.ts';
import type { ClientWire } from '#protocol/client-wire.ts';
import { must } from '../../support/engine.ts';

function promptOf(body: unknown, wire: ClientWire = 'messages'): Prompt {
  const bytes = Buffer.from(typeof body === 'string' ? body : JSON.stringify(body));
  return clientPrompt(bytes, must(readRequestFacts(wire, bytes)));
}
const user = (text: string, rest: object = {}) => ({ role: 'user', content: [{ type: 'text', text, ...rest }] });
const body = (messages: readonly unknown[], rest: object = {}) => ({ model: 'm', max_tokens: 9, messages, ...rest });
const chainAt = (prompt: Prompt, count: number) => hashPromptChains('a:m', prompt, new Set([count])).get(count);
const keys = ({ head }: Prompt) => head.map(({ key }) => key);
const total = (prompt: Prompt) => selectNewText(prompt, null);

describe("a client's prompt", () => {
  it.each([
    [
      'messages',
      body([user('hi'), user('ü'.repeat(50))], {
        system: [{ type: 'text', text: 's' }],
        tools: [{ name: 't' }],
        top_k: 3,
      }),
    ],
    ['messages', body([user('hi')], { system: 'one text' })],
    [
      'chat',
      body([user('hi')], {
        tools: [{ type: 'function', function: { name: 't' } }],
        response_format: { type: 'json_object' },
      }),
    ],
    ['responses', { model: 'm', input: 'a text', instructions: 'be brief' }],
    ['responses', { model: 'm', input: [user('hi')], tools: [{ type: 'function', name: 't' }] }],
  ] as const)('of the wire %s counts each byte of the body where nothing is known', (wire, sent) => {
    expect(total(promptOf(sent, wire)).bytes).toBe(Buffer.byteLength(JSON.stringify(sent)));
  });

  it('counts bytes that a repeated key hides from one of two readers', () => {
    const hidden = `{"role":"user","content":"${'x'.repeat(1000)}","content":"y"}`;
    const sent = `{"model":"m","max_tokens":9,"messages":[${hidden}]}`;
    const prompt = promptOf(sent);
    expect(total(prompt).bytes).toBe(sent.length);
    expect(prompt.messages[0]!.bytes).toBe(hidden.length);
    expect(chainAt(prompt, 1)).not.toBe(chainAt(promptOf(sent.replace('xxx', 'zzz')), 1));
  });

  it('keeps its keys where a breakpoint of the cache moves, whose bytes count as new', () => {
    const mark = { cache_control: { type: 'ephemeral', ttl: '1h' } };
    const plain = promptOf(body([user('one'), user('two')], { system: [{ type: 'text', text: 's' }] }));
    const marked = promptOf(body([user('one', mark), user('two')], { system: [{ type: 'text', text: 's', ...mark }] }));
    expect([chainAt(marked, 2), keys(marked)]).toEqual([chainAt(plain, 2), keys(plain)]);
    expect(plain.unkeyed.bytes).toBe(0);
    const length = (prompt: Prompt) => total(prompt).bytes;
    expect(length(marked) - length(plain)).toBe(marked.unkeyed.bytes);
    const known = { tokens: 10, head: new Set(keys(marked)), messages: 2 };
    expect(selectNewText(marked, known).bytes).toBe(marked.unkeyed.bytes);
    expect(marked.unkeyed.bytes).toBe(2 * ',"cache_control":{"type":"ephemeral","ttl":"1h"}'.length);
    // In a text the same letters are text.
    const quoted = promptOf(body([user('one'), user('two,"cache_control":{"type":"ephemeral"}')]));
    expect(quoted.unkeyed.bytes).toBe(0);
    expect(chainAt(quoted, 2)).not.toBe(chainAt(plain, 2));
  });

  it('has other settings where a member changes that a provider may read, and the same where it reads none', () => {
    const { settings } = promptOf(body([user('hi')], { thinking: { type: 'enabled', budget_tokens: 1024 } }));
    const again = body([user('hi')], { thinking: { type: 'enabled', budget_tokens: 1024 } });
    expect(
      promptOf({ ...again, max_tokens: 4000, stream: true, metadata: { user_id: 'x' }, temperature: 1 }).settings,
    ).toBe(settings);
    for (const rest of [
      { thinking: { type: 'enabled', budget_tokens: 2048 } },
      { tool_choice: { type: 'any' } },
      { context_management: {} },
      { new: 1 },
    ])
      expect(promptOf({ ...again, ...rest }).settings).not.toBe(settings);
  });

  it('gives a part that is there twice two keys, and each tool one', () => {
    const text = { type: 'text', text: 'again' };
    const prompt = promptOf(body([], { system: [text, text], tools: [{ name: 'a' }, { name: 'b' }] }));
    expect(new Set(keys(prompt)).size).toBe(4);
  });

  it('counts the description of a tool that only the provider knows', () => {
    const own = promptOf(body([], { tools: [{ type: 'custom', name: 'a' }] })).head[0]!.bytes;
    const sent = { type: 'text_editor_20250728', name: 'a' };
    expect(promptOf(body([], { tools: [sent] })).head[0]!.bytes).toBe(1500 + JSON.stringify(sent).length);
    expect(own).toBe(JSON.stringify({ type: 'custom', name: 'a' }).length);
  });

  it('counts images by their number, and a file or a reference as without a bound, each in its own message', () => {
    const data = 'A'.repeat(5000);
    const image = { type: 'image', source: { type: 'base64', media_type: 'image/png', data } };
    const pdf = { type: 'document', source: { type: 'base64', media_type: 'application/pdf', data } };
    const sent = body([user('hi'), { role: 'user', content: [image, image] }, { role: 'user', content: [pdf] }]);
    const prompt = promptOf(sent);
    expect(prompt.messages.map(({ images, unbounded }) => [images, unbounded])).toEqual([
      [0, false],
      [2, false],
      [0, true],
    ]);
    expect(prompt.messages[1]!.bytes).toBe(JSON.stringify(sent.messages[1]).length - 2 * data.length);
    expect([total(prompt).images, total(prompt).unbounded, prompt.unbounded]).toEqual([2, true, false]);
    const known = { tokens: 10, head: new Set<string>(), messages: 3 };
    expect(selectNewText(prompt, known)).toMatchObject({ unbounded: false, images: 0, bytes: 0, known: 26 });

    const kept = (item: object) => promptOf({ model: 'm', input: [item] }, 'responses').messages[0]!.unbounded;
    expect(kept({ type: 'item_reference', id: 'msg_1' })).toBe(true);
    expect(kept({ type: 'reasoning', id: 'rs_1', summary: [] })).toBe(true);
    expect(kept({ type: 'reasoning', id: 'rs_1', summary: [], encrypted_content: 'AAAA' })).toBe(false);
    expect(kept({ type: 'reasoning', content: [{ type: 'reasoning_text', text: 'so' }] })).toBe(false);
    const inSystem = promptOf(body([user('hi')], { system: [image] }));
    expect(selectNewText(inSystem, { ...known, messages: 1 }).images).toBe(1);
    expect(promptOf(body([user('hi')], { system: [pdf] })).unbounded).toBe(true);
  });

  // Promise 19.37: deferred tools and what is behind an address are never known.
  it('counts what a later call may find larger: deferred tools that a message loads, and what is behind an address', () => {
    const tool = { name: 'big', description: 'x'.repeat(5000), defer_loading: true };
    const load = (...names: readonly string[]) => ({
      role: 'user',
      content: [
        {
          type: 'tool_result',
          tool_use_id: 't',
          content: names.map((tool_name) => ({ type: 'tool_reference', tool_name })),
        },
      ],
    });
    const size = (value: unknown) => JSON.stringify(value).length;
    const twice = load('big', 'big', 'unknown');
    const prompt = promptOf(body([user('hi'), twice], { tools: [tool] }));
    const known = { tokens: 10, head: new Set(keys(prompt)), messages: 1 };
    expect(selectNewText(prompt, known).bytes).toBe(size(twice) + 2 * size(tool));
    expect(chainAt(prompt, 2)).not.toBe(
      chainAt(promptOf(body([user('hi'), twice], { tools: [{ ...tool, more: 1 }] })), 2),
    );

    const image = { type: 'image', source: { type: 'url', url: 'https://example.com/a.png' } };
    const shown = promptOf(body([{ role: 'user', content: [image] }]));
    expect([total(shown).images, selectNewText(shown, { ...known, messages: 1 }).images]).toEqual([1, 1]);
    for (const url of ['https://example.com/a.png', ' HTTPS://example.com/a.png', '//example.com/a'])
      for (const image_url of [url, { url }]) {
        const item = { role: 'user', content: [{ type: 'image_url', image_url }] };
        expect(selectNewText(promptOf(body([item]), 'chat'), { ...known, messages: 1 }).images).toBe(1);
      }
    const inline = { role: 'user', content: [{ type: 'image_url', image_url: { url: 'data:image/png;base64,AAAA' } }] };
    expect(selectNewText(promptOf(body([inline]), 'chat'), { ...known, messages: 1 }).images).toBe(0);
    const remote = { type: 'document', source: { type: 'url', url: 'https://example.com/a.pdf' } };
    expect(
      selectNewText(promptOf(body([{ role: 'user', content: [remote] }])), { ...known, messages: 1 }).unbounded,
    ).toBe(true);
  });

  it('finds files and images inside of results that are objects, and parts that only a provider can measure', () => {
    const part = (item: object, wire: ClientWire = 'messages') =>
      promptOf(wire === 'responses' ? { model: 'm', input: [item] } : body([{ role: 'user', content: [item] }]), wire)
        .messages[0]!;
    const pdf = { type: 'document', source: { type: 'base64', media_type: 'application/pdf', data: 'AAAA' } };
    const fetched = { type: 'web_fetch_tool_result', content: { type: 'web_fetch_result', content: pdf } };
    expect(part(fetched).unbounded).toBe(true);
    const output = { type: 'computer_screenshot', image_url: 'https://example.com/a.png' };
    const shot = promptOf({ model: 'm', input: [{ type: 'computer_call_output', output }] }, 'responses');
    expect(total(shot).images).toBe(1);
    expect(part({ type: 'video_url', video_url: { url: 'https://example.com/a.mp4' } }, 'chat').unbounded).toBe(true);
    expect(part({ type: 'image_generation_call', id: 'ig_1' }, 'responses').unbounded).toBe(true);
    expect(part({ type: 'reasoning', id: 'rs_1', encrypted_content: '' }, 'responses').unbounded).toBe(true);
    const spoken = promptOf(body([{ role: 'assistant', audio: { id: 'audio_1' } }]), 'chat');
    expect(spoken.messages[0]!.unbounded).toBe(true);
  });

  it('reads messages however they are written, and an empty list', () => {
    const sent = `{ "model" : "m", "max_tokens":9 ,\n"messages" : [ {"role":"user","content":"a, ] \\" b"} ,\t{"role":"user","content":"b"} ] }`;
    const prompt = promptOf(sent);
    expect(prompt.messages.map(({ texts }) => texts!())).toEqual([
      expect.arrayContaining(['a, ] " b']),
      expect.arrayContaining(['b']),
    ]);
    expect(promptOf(body([])).messages).toEqual([]);
  });
});
