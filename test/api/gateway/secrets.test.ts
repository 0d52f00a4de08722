// A key in every field of every answer: none of it is stored or logged, and no error hands the server's on (01 §10.3, 19 §2.7).
import fs from 'node:fs';
import path from 'node:path';
import { describe, expect, test } from 'vitest';
import { answerVariants } from '../../support/field-variants.ts';
import { KEYS } from '../../support/registry-at.ts';
import { partsOf, type Said } from './provider.ts';
import { claudeCode, everything, startGateway } from './world.ts';

const WIRES = {
  messages: { path: '/v1/messages', model: 'claude-opus-4-7', key: KEYS.anthropic },
  chat: { path: '/v1/chat/completions', model: 'gpt-5', key: KEYS.openai },
  responses: { path: '/v1/responses', model: 'gpt-5', key: KEYS.openai },
} as const;
const CLIENTS_KEY = 'carried-by-the-client-alone';

function errorsWith(key: string): string[][] {
  const error = {
    type: 'invalid_request_error',
    code: 'bad',
    message: 'no',
    param: 'p',
    metadata: { raw: 'upstream' },
  };
  return [
    ...answerVariants([JSON.stringify({ type: 'error', error, request_id: 'req_1' })], key),
    [JSON.stringify({ error: key })],
    [`${key} is not JSON`],
    [...JSON.stringify({ error: { ...error, message: `key ${key}, and ${key}` } })],
    [`the beginning of one: ${key.slice(0, -1)}`],
  ];
}

function bodyOf(wire: keyof typeof WIRES, stream: boolean) {
  const prompt = wire === 'responses' ? { input: 'hi' } : { messages: [{ role: 'user', content: 'hi' }] };
  return { model: WIRES[wire].model, ...(wire === 'messages' ? { max_tokens: 50 } : {}), ...prompt, stream };
}

describe.each(Object.keys(WIRES) as (keyof typeof WIRES)[])('on the wire %s', (wire) => {
  const { path: target, key } = WIRES[wire];

  // Promise 01.31: the server's key in any field of a relayed answer or error.
  test.each([false, true])(
    "the server's key in any field of an answer is kept nowhere; streamed: %s",
    async (stream) => {
      const body = bodyOf(wire, stream);
      const usual = partsOf({ path: target, body }, {});
      const broken = [...usual.slice(0, 2), `data: {"type":"error","error":{"type":"t","code":"c","message":"m"}}\n\n`];
      // A usual answer behind each broken one: no outage begins.
      const strange = stream ? answerVariants(broken, key).flatMap((answer) => [answer, usual]) : [];
      const answers = [...answerVariants(usual, key), ...strange];
      expect(answers.length).toBeGreaterThan(5);
      const headers = { 'request-id': key, 'x-request-id': key };
      let next = 0;
      const world = await startGateway((): Said => ({ raw: answers[next]!, headers }));
      for (; next < answers.length; next++) {
        const answer = await world.post(target, body);
        expect(JSON.stringify([...answer.headers])).not.toContain(key);
        await answer.text();
      }
      expect(world.provider.received.length).toBe(answers.length);
      expect(await everything(world)).not.toContain(key);
    },
  );

  test("the server's key in any field of an error is kept nowhere and not handed on", async () => {
    const errors = errorsWith(key);
    let next = 0;
    const headers = { 'request-id': key, 'www-authenticate': `Bearer ${key}` };
    const world = await startGateway((): Said => ({ status: 422, raw: errors[next]!, headers }));
    for (; next < errors.length; next++) {
      const answer = await world.post(target, bodyOf(wire, false));
      const text = await answer.text();
      expect([answer.status, text]).toEqual([422, errors[next]!.join('').replaceAll(key, '[REDACTED]')]);
      expect(JSON.stringify([...answer.headers])).not.toContain(key);
    }
    expect(world.provider.received).toHaveLength(errors.length);
    expect(await everything(world)).not.toContain(key);
  });

  // Promise 01.31: a client's key in any field of an error, in a recording too.
  test("a client's own key in any field of an error comes back to it and is kept nowhere, in a recording neither", async () => {
    const errors = errorsWith(CLIENTS_KEY);
    let next = 0;
    const record = path.join(fs.mkdtempSync('/tmp/metis-record-'), 'kept');
    const config = { gateway: { credentials: 'client' as const, record } };
    const world = await startGateway((): Said => ({ status: 422, raw: errors[next]! }), { config, wires: [] });
    for (; next < errors.length; next++) {
      const headers = { ...claudeCode('s1'), authorization: `Bearer ${CLIENTS_KEY}` };
      expect(await (await world.post(target, bodyOf(wire, false), headers)).text()).toBe(errors[next]!.join(''));
    }
    expect(await everything(world)).not.toContain(CLIENTS_KEY);
    const files = fs.readdirSync(record);
    expect(files).toHaveLength(errors.length);
    for (const file of files) expect(fs.readFileSync(path.join(record, file), 'utf8')).not.toContain(CLIENTS_KEY);
  });
});

test('a network error that quotes the key is shown and kept without it', async () => {
  const send = () => Promise.reject(new Error(`no route with ${KEYS.anthropic}`));
  const world = await startGateway(undefined, { send });
  const answer = await world.post('/v1/messages', bodyOf('messages', false));
  expect([answer.status, await answer.text()]).toEqual([502, expect.stringContaining('no route with [REDACTED]')]);
  expect(await everything(world)).not.toContain(KEYS.anthropic);
});
