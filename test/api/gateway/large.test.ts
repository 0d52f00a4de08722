// Bodies and answers that would hold the event loop: bounded before they are parsed, and parsed elsewhere (19 §2.2).
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { describe, expect, test, vi } from 'vitest';
import { clientPrompt } from '#core/policy/gateway/client-prompt.ts';
import { readRequestFacts } from '#core/policy/gateway/request-facts.ts';
import { readJson } from '#core/policy/parsing/json.ts';
import { CLIENT_BODY } from '#core/policy/parsing/text-limits.ts';
import {
  type Prompt,
  type PromptPart,
  readPrompt as readPromptParts,
  restorePrompt,
  selectNewText,
} from '#core/policy/pricing/prompt-tokens.ts';
import { createUsageFilter } from '#models/relay/answer-filters.ts';
import type { ThreadedParser } from '#models/threads/threaded-parser.ts';
import { createMeter, type LargeAnswers, readWholeAnswer } from '#models/wire/answer-meter.ts';
import { messagesMeter } from '#models/wire/wire-meters.ts';
import { must } from '../../support/engine.ts';
import { jsonOf, startGateway } from './world.ts';

const OPUS = 'claude-opus-4-7';
const MB = 1024 * 1024;
const HEAD = `{"model":"${OPUS}","max_tokens":50,"messages":[{"role":"user","content":"hi"}]`;
const keys = (n: number) => Array.from({ length: n }, (_, i) => `"k${i}":1`).join(',');

describe('a request', () => {
  // Promise 19.36: keys, values and levels of a request are bounded before it is parsed.
  test.each([
    ['1,001 members', `${HEAD},${keys(998)},"k998":1}`, 'has more than 1000 keys'],
    ['300,000 members', `${HEAD},${keys(300_000)}}`, 'has more than 1000 keys'],
    ['100,001 keys inside', `${HEAD},"x":{${keys(99_999)}}}`, 'has more than 100000 keys'],
    ['1,000,001 values', `${HEAD},"x":[${'1,'.repeat(1_000_000)}1]}`, 'has more than 1000000 values'],
    ['129 levels', `${HEAD},"x":${'['.repeat(128)}${']'.repeat(128)}}`, 'is nested deeper than 128 levels'],
  ])('with %s is refused before a value is made of it', async (_, body, said) => {
    const world = await startGateway();
    const answer = await world.post('/v1/messages', body);
    expect(answer.status).toBe(400);
    expect((await jsonOf(answer)).error.message).toContain(said);
    expect(world.provider.received).toEqual([]);
  });

  test('within the limits is taken: 1,000 members, 100,000 keys', () => {
    // Keys count inside of the members of the body; HEAD has three members and two keys.
    for (const body of [`${HEAD},${keys(997)}}`, `${HEAD},"x":{${keys(99_998)}}}`])
      expect(readRequestFacts('messages', Buffer.from(body)).ok).toBe(true);
    expect(readJson(`{${keys(100_000)}}`, CLIENT_BODY).ok).toBe(true);
    expect(readJson(`{${keys(100_001)}}`, CLIENT_BODY)).toEqual({ ok: false, error: 'has more than 100000 keys' });
  });

  test('of 31 MB goes on byte for byte, and one that is broken is refused', async () => {
    const world = await startGateway();
    const body = Buffer.from(`${HEAD},"x":"${'a \\"b\\u00e9'.repeat(3_000_000)}"}`);
    await (await world.post('/v1/messages', `${HEAD},"x":"${'y'.repeat(300_000)}"}`)).text();
    const answer = await world.post('/v1/messages', body);
    expect(answer.status).toBe(200);
    expect(world.provider.received[1]!.bytes.equals(body)).toBe(true);
    const refused = await world.post('/v1/messages', `${HEAD},"x":"${'y'.repeat(300_000)}"`);
    expect([refused.status, (await jsonOf(refused)).error.message]).toEqual([400, expect.stringContaining('JSON')]);
  });

  // Promise 19.36: a large request is parsed on a thread.
  test('above 256 kB is parsed on a thread: the loop never sees it', async () => {
    const world = await startGateway();
    const { bodies } = world.server.engine;
    const text = Buffer.from(`${HEAD},"x":"${'a \\"b'.repeat(5 * MB)}"}`);
    const expected = readRequestFacts('messages', text);
    await bodies!.readRequest('messages', Buffer.from(`${HEAD}}`));
    const given = Buffer.concat([text]);
    const read = bodies!.readRequest('messages', given);
    // Nothing of it is left here while the thread has it.
    expect(given.byteLength).toBe(0);
    const { facts, bytes } = await read;
    expect(facts).toEqual(expected);
    expect(bytes.equals(text)).toBe(true);
  });
});

describe('under a limit', () => {
  const capped = () => startGateway(() => ({}), { config: { budgets: { session_default_usd: '5000' } } });

  // Promise 19.36: under a limit the prompt of a large request is read on a thread.
  test('the prompt of a large request is read on a thread, the same as here', async () => {
    const world = await capped();
    const bodies = world.server.engine.bodies!;
    const readPrompt = vi.spyOn(bodies, 'readPrompt');
    const image = '{"type":"image","source":{"type":"base64","media_type":"image/png","data":"AAAA"}}';
    const body = `${HEAD.replace('"hi"', `[{"type":"text","text":"ü"},${image}]`)},"system":"s","tools":[{"name":"t"}],"top_k":${' '.repeat(300_000)}3}`;
    const bytes = Buffer.from(body);
    const facts = must(readRequestFacts('messages', bytes));
    const withTexts = (prompt: Prompt) => readPromptParts(prompt, true);
    const expected = withTexts(clientPrompt(Buffer.from(body), facts));
    const read = bodies.readPrompt(bytes, facts, true);
    expect(bytes.byteLength).toBe(0);
    const found = await read;
    expect(withTexts(found.prompt)).toEqual(expected);
    expect(found.bytes.equals(Buffer.from(body))).toBe(true);
    expect(withTexts((await bodies.readPrompt(found.bytes, facts, false)).prompt).head[0]?.texts).toBe(null);
    readPrompt.mockClear();

    await (await world.post('/v1/messages', `${HEAD}}`)).text();
    expect(readPrompt).not.toHaveBeenCalled();
    await (await world.post('/v1/messages', body)).text();
    expect(readPrompt).toHaveBeenCalledOnce();
    expect(world.provider.received[1]!.bytes.equals(Buffer.from(body))).toBe(true);
  });

  // Promise 19.36: many messages or tools count as one part.
  test('more than 5,000 messages or tools are one part, and such tools are bounded by the window alone', () => {
    const list = (count: number, item: string) => `[${Array(count).fill(item).join(',')}]`;
    const promptOf = (messages: string, tools: string) => {
      const bytes = Buffer.from(`{"model":"m","max_tokens":9,"messages":${messages},"tools":${tools}}`);
      return { length: bytes.length, prompt: clientPrompt(bytes, must(readRequestFacts('messages', bytes))) };
    };
    const message = '{"role":"user","content":"x"}';
    const most = promptOf(list(5000, message), list(5000, '{"name":"t"}')).prompt;
    expect([most.messages.length, most.head.length, selectNewText(most, null).unbounded]).toEqual([5000, 5000, false]);
    const { length, prompt } = promptOf(list(5001, message), list(5001, '{"name":"t"}'));
    expect([prompt.messages.length, prompt.head.length]).toEqual([1, 1]);
    expect(selectNewText(prompt, null)).toMatchObject({ bytes: length, unbounded: true });
    expect(selectNewText(promptOf(list(5001, message), '[]').prompt, null).unbounded).toBe(false);
    const image = '{"role":"user","content":[{"type":"image","source":{"type":"base64","data":"AA"}}]}';
    expect(selectNewText(promptOf(list(5001, image), '[]').prompt, null).unbounded).toBe(true);
    const other = promptOf(list(5001, message.replace('x', 'y')), '[]').prompt;
    expect(other.messages[0]!.key).not.toBe(prompt.messages[0]!.key);
  });

  test('texts are handed over from the last message on, within a number and a length', () => {
    const part = (key: string, texts: readonly string[], bytes = 10): PromptPart => ({
      ...{ key, bytes, images: 0, unbounded: false },
      texts: () => texts,
    });
    const many = Array.from({ length: 30_000 }, () => 'x');
    const parts = [part('a', many), part('b', ['y'], 9_000_000), part('c', many)];
    const prompt = {
      ...clientPrompt(Buffer.from(`${HEAD}}`), must(readRequestFacts('messages', Buffer.from(`${HEAD}}`)))),
      head: [part('h', ['h'])],
      messages: parts,
    };
    const read = readPromptParts(prompt, true);
    expect(read.messages.map(({ texts }) => texts?.length ?? null)).toEqual([null, null, 30_000]);
    expect(read.head[0]!.texts).toEqual(['h']);
    expect(restorePrompt(read).messages[2]!.texts!()).toEqual(many);
    expect(restorePrompt(read).messages[0]!.texts).toBe(null);
  });
});

test('large options of a stream are read once, where the request is', async () => {
  const options = `{"x":"${'\\"'.repeat(200_000)}","include_usage":false}`;
  const body = Buffer.from(`{"model":"gpt-5","stream":true,"stream_options":${options},"messages":[]}`);
  const { stream_options } = must(readRequestFacts('chat', body));
  const { from, to, text } = stream_options!.asking!;
  expect([body.subarray(from, to).toString(), text]).toEqual(['false', 'true']);
});

// Promise 19.36: the file of a large exchange is made on a thread.
test('the file of a large exchange is made on a thread, without credentials', async () => {
  const record = fs.mkdtempSync(path.join(os.tmpdir(), 'metis-record-'));
  const world = await startGateway(() => ({}), { config: { gateway: { record } } });
  const make = vi.spyOn(world.server.engine.bodies as ThreadedParser, 'makeRecording');
  await (await world.post('/v1/messages', `${HEAD}}`)).text();
  expect(make).not.toHaveBeenCalled();
  const secret = 'sk-ant-api03-of-the-client';
  const text = `${'y'.repeat(300_000)} ${secret}`;
  await (await world.post('/v1/messages', `${HEAD},"x":"${text}"}`, { 'x-api-key': secret })).text();
  expect(make).toHaveBeenCalledOnce();
  await make.mock.results[0]!.value;
  await world.server.close();
  const files = fs.readdirSync(record).map((name) => fs.readFileSync(path.join(record, name), 'utf8'));
  expect(files).toHaveLength(2);
  expect(files.join('')).not.toContain(secret);
  const large = JSON.parse(files.find((file) => file.length > 300_000)!);
  expect(large).toMatchObject({ schema_version: 1, path: '/v1/messages', status: 200, end: 'complete' });
  expect(large.body.x).toBe(`${'y'.repeat(300_000)} [REDACTED]`);
});

describe('an answer', () => {
  const whole = (text: string) =>
    JSON.stringify({
      model: OPUS,
      content: [{ type: 'text', text }],
      stop_reason: 'end_turn',
      usage: { input_tokens: 7, output_tokens: 9 },
    });

  // Promise 19.36: an answer of brackets passes and is counted by its size.
  test('of 31 MB of brackets passes and is counted by its size', async () => {
    const raw = '['.repeat(31 * MB);
    const world = await startGateway(() => ({ raw }));
    const answer = await world.post('/v1/messages', `${HEAD}}`);
    expect((await answer.text()).length).toBe(raw.length);
    expect((await world.server.event('llm.call_completed')).payload).toMatchObject({ usage_estimated: true });
  });

  test('that is large and well formed has its own counts', async () => {
    const world = await startGateway(() => ({ raw: whole('x'.repeat(2 * MB)) }));
    await (await world.post('/v1/messages', `${HEAD}}`)).text();
    expect((await world.server.event('llm.call_completed')).payload).toMatchObject({
      input_tokens: 7,
      output_tokens: 9,
      usage_estimated: false,
    });
  });

  test('above its bound is handed over, one below is read here; where the thread fails it is counted by its size', async () => {
    const seen: number[] = [];
    const large: LargeAnswers = {
      above: 1000,
      read: async (bytes) => {
        seen.push(bytes.byteLength);
        return bytes.byteLength > 5000 ? null : readWholeAnswer(messagesMeter, bytes);
      },
    };
    const readingOf = async (length: number) => {
      const meter = createMeter(messagesMeter, 'json', large);
      meter.feed(Buffer.from(whole('x'.repeat(length))));
      await meter.end();
      return meter.reading;
    };
    expect((await readingOf(10)).usage.output).toBe(9);
    expect(seen).toEqual([]);
    expect(await readingOf(2000)).toMatchObject({ whole: true, usage: { output: 9 }, characters: 2000 });
    expect(await readingOf(6000)).toMatchObject({ whole: true, usage: { output: null } });
    expect(seen).toHaveLength(2);
  });

  test('has no event that is parsed beyond the limits of one', () => {
    const meter = createMeter(messagesMeter, 'stream');
    const deep = `${'['.repeat(200)}${']'.repeat(200)}`;
    const pad = ' '.repeat(70_000);
    meter.feed(Buffer.from(`data: {"type":"message_stop","x":${deep}${pad}}\n\n`));
    expect(meter.reading.whole).toBe(false);
    meter.feed(Buffer.from(`data: {"type":"message_stop"${pad}}\n\n`));
    expect(meter.reading.whole).toBe(true);
    // Nor one that might be withheld.
    const chunk = Buffer.from(`data: {"choices":[],"usage":{"x":${deep}}${pad}}\n\n`);
    expect(createUsageFilter().pass(chunk).byteLength).toBe(chunk.byteLength);
  });
});
