// Requests made from the OpenAPI document and made worse, with the tokens of others: nothing of a private session is found (23 §1).
import http from 'node:http';
import { expect, it } from 'vitest';
import { type Someone, startPeople } from '../api/people/world.ts';
import { call, delegate, planner, scenario, worker } from '../support/scenario.ts';
import { createFuzz, type FuzzCase, type Known } from './requests.ts';

const CASES = Number(process.env.FUZZ_CASES ?? 1000);
const SEED = Number(process.env.FUZZ_SEED ?? 20_261);
const MARK = 'the-marked-words';
const LANES = 4;

type RequestCase = Extract<FuzzCase, { kind: 'request' }>;

/** The answer's text, the head of a stream; '' where Node's client refuses to write the request. */
function send(port: number, { headers: asked }: Someone, one: RequestCase): Promise<string> {
  const length = one.body === null ? {} : { 'content-length': Buffer.byteLength(one.body) };
  const headers = { ...one.headers, ...asked, ...length };
  return new Promise((resolve) => {
    try {
      const sent = http.request({ port, host: '127.0.0.1', method: one.method, path: one.target, headers });
      sent.on('error', () => resolve(''));
      sent.on('response', (response) => {
        let text = JSON.stringify(response.headers);
        response.on('data', (part) => {
          text += part;
          if (response.headers['content-type']?.startsWith('text/event-stream') === true) response.destroy();
        });
        response.on('close', () => resolve(text));
        if (response.headers['content-type']?.startsWith('text/event-stream') === true)
          setImmediate(() => response.destroy());
      });
      sent.end(one.body ?? undefined);
    } catch {
      resolve('');
    }
  });
}

// Promise 23.2: a viewer's and a member's token find nothing of a private session, whatever they ask.
it(
  `${CASES} requests with the tokens of a viewer and a member show nothing of a private session (FUZZ_SEED=${SEED})`,
  async () => {
    const { server, ann, bob, eve } = await startPeople({
      files: { 'workers/helper.yaml': 'instructions: Help.' },
      scenario: scenario(
        planner({ text: MARK, tool_calls: [delegate(`task ${MARK}`)] }, { text: 'done' }),
        worker(MARK, { tool_calls: [call('write_file', { path: 'a.txt', content: MARK })] }, { text: MARK }),
        [{ match: {}, times: 'inf', respond: { text: 'ok' } }],
      ),
    });
    const secret = await ann.open({ share: 'private', client: MARK, initial_active_model: 'opus' });
    const { turn_id: turn } = (await ann.call('POST', `/sessions/${secret.id}/turns`, { content: MARK })).body;
    await server.event('tool.confirmation_requested');
    const { workers } = (await ann.call('GET', `/sessions/${secret.id}/workers`)).body;
    const { events } = (await ann.call('GET', `/sessions/${secret.id}/events`)).body;
    const before = (await ann.call('GET', `/sessions/${secret.id}`)).body;
    const hidden = [secret.id, workers[0].worker_session_id, turn] as string[];
    const shared = await ann.open({ share: 'read' });
    const own = await bob.open();
    const known: Known = {
      workspace: server.workspace,
      sessions: [secret.id, hidden[1]!, shared.id, own.id],
      turns: [
        { session: secret.id, turn },
        { session: hidden[1]!, turn },
      ],
      events: events.map(({ id }: { id: string }) => id),
    };
    const next = createFuzz(SEED);
    const found: string[] = [];
    let left = CASES;
    const lane = async () => {
      while (left-- > 0) {
        const one = next(known);
        if (one.kind !== 'request') continue;
        const who = left % 2 === 0 ? bob : eve;
        const text = await send(server.port, who, one);
        const asked = `${decodeURIComponent(one.target.replaceAll('%', '%25'))} ${one.body} ${JSON.stringify(one.headers)}`;
        const ids = hidden.filter((id) => text.includes(id) && !asked.includes(id));
        if (text.includes(MARK) || ids.length > 0) found.push(`${who.name} ${one.method} ${one.target} -> ${text}`);
      }
    };
    await Promise.all(Array.from({ length: LANES }, lane));
    expect(found.map((one) => one.slice(0, 600))).toEqual([]);
    expect((await ann.call('GET', `/sessions/${secret.id}`)).body).toEqual(before);
  },
  60_000 + CASES * 50,
);
