// The server's key in what a provider or a model says: in no event, log line, prompt or row beside the model's own words (01 §10.3, 09 §6.1).
import fs from 'node:fs';
import path from 'node:path';
import Database from 'better-sqlite3';
import { describe, expect, test } from 'vitest';
import { tempFolder } from '../support/engine.ts';
import type { FakeAnswer, FakeCall } from '../support/fake-provider.ts';
import { answerVariants } from '../support/field-variants.ts';
import { startReal, startStrictFake } from '../support/real-server.ts';
import { KEYS, registryAt, WIRES } from '../support/registry-at.ts';

const MODEL = { anthropic: 'opus', openai: 'gpt' } as const;

async function world(answer: (call: FakeCall) => FakeAnswer) {
  const data = tempFolder();
  const workspace = path.join(data, 'workspace');
  fs.mkdirSync(workspace);
  const fake = await startStrictFake(answer);
  const config = { tool_confirmation: { per_tool: { shell: 'prompt', write_file: 'prompt' } as const } };
  const server = await startReal({ folder: data, registry: registryAt(fake), config });
  /** Every row but those of messages and calls, which hold the model's own words. */
  const rows = async () => {
    await server.close();
    const db = new Database(path.join(data, 'metis.db'), { readonly: true });
    const tables = db.prepare("SELECT name FROM sqlite_master WHERE type = 'table'").pluck().all() as string[];
    const text = tables
      .filter((table) => !['messages', 'tool_calls'].includes(table))
      .map((table) => JSON.stringify(db.prepare(`SELECT * FROM "${table}"`).safeIntegers().all(), inText));
    db.close();
    return text.join('\n');
  };
  return { workspace, server, rows };
}
const inText = (_: string, value: unknown) => (typeof value === 'bigint' ? String(value) : value);

describe.each(WIRES)('over the %s wire', (wire) => {
  const key = KEYS[wire];

  // Promise 01.31: the key in any field of an error of a turn.
  test('the key in any field of an error is in no event, log line or row', async () => {
    const error = { type: 'invalid_request_error', code: 'bad', message: 'no', metadata: { raw: 'upstream' } };
    const begun =
      wire === 'anthropic'
        ? { type: 'message_start', message: { model: 'm', usage: { input_tokens: 5, output_tokens: 1 } } }
        : { choices: [{ index: 0, delta: { content: 'well' } }] };
    const event = (data: object) => `data: ${JSON.stringify(data)}\n\n`;
    const answers: FakeAnswer[] = [
      ...answerVariants([JSON.stringify({ type: 'error', error })], key).map((raw) => ({ status: 422, raw })),
      ...answerVariants([event(begun), event({ type: 'error', error })], key).map((raw) => ({ raw })),
      { status: 503, headers: { 'retry-after-ms': '1', 'request-id': key }, raw: [JSON.stringify({ error: key })] },
    ];
    const { workspace, server, rows } = await world(({ number }) => answers[number - 1] ?? { text: 'well' });
    for (const _ of answers) {
      // A fresh model call each: what fails before an answer ends its turn.
      const session = await server.session(workspace, MODEL[wire]);
      await server.turn(session, 'go');
    }
    expect(server.events.filter(({ type }) => type === 'turn.failed').length).toBeGreaterThan(6);
    for (const text of [JSON.stringify(server.events), JSON.stringify(server.log), await rows()])
      expect(text).not.toContain(key);
  });

  // Promise 01.31: the key in the calls of a model, and in what a person is asked.
  test('the key in the calls of a model is in no event, and what a person is asked shows none of it', async () => {
    const { workspace, server, rows } = await world(({ results }) =>
      results.length > 0
        ? { text: 'done' }
        : {
            tool_calls: [
              { name: key, json: `{"${key}` },
              { name: 'read_file', input: { [key]: 1 } },
              { name: 'shell', input: { command: `echo ${key} > out.txt` } },
              { name: 'write_file', input: { path: `${key}.txt`, content: key } },
            ],
          },
    );
    const session = await server.session(workspace, MODEL[wire]);
    const turn = server.turn(session, 'go');
    for (const tool of ['shell', 'write_file']) {
      const asked = await server.event(
        'tool.confirmation_requested',
        ({ payload }) => (payload as { tool_name: string }).tool_name === tool,
      );
      const { confirmation_request_id } = asked.payload as { confirmation_request_id: string };
      const listed = await server.call('GET', '/confirmations');
      expect(JSON.stringify(listed.body)).toContain('[REDACTED]');
      expect(JSON.stringify(listed.body)).not.toContain(key);
      await server.call('POST', `/confirmations/${confirmation_request_id}`, { decision: 'approve' });
    }
    await turn;
    // The call itself runs with what the model wrote.
    expect(fs.readFileSync(path.join(workspace, 'out.txt'), 'utf8')).toBe(`${key}\n`);
    expect(fs.readFileSync(path.join(workspace, `${key}.txt`), 'utf8')).toBe(key);
    for (const text of [JSON.stringify(server.events), JSON.stringify(server.log)]) expect(text).not.toContain(key);
    expect(await rows()).toContain('[REDACTED]');
  });
});
