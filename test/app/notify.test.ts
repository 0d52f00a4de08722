// Webhooks: what happens is told to the outside, in order, at least once, and to nobody's cost (20 §7).
import { createHmac } from 'node:crypto';
import { getEventListeners, once } from 'node:events';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { describe, expect, it, onTestFinished } from 'vitest';
import { silentLogger } from '#core/ports/logger.ts';
import type { Clock } from '#protocol/clock.ts';
import { NotifySchema, type Receiver } from '#protocol/config.ts';
import { createCredentials } from '#server/credentials.ts';
import { resolveReceiverKeys, runReceiver, startNotify } from '#server/notify.ts';
import { startEngine, type TestEngine } from '../support/engine.ts';
import { manualClock } from '../support/manual-clock.ts';
import { call, delegate, planner, scenario, worker } from '../support/scenario.ts';
import { until } from '../support/until.ts';

const SECRET = 'the key of the hook';

interface Told {
  readonly headers: IncomingMessage['headers'];
  readonly body: string;
  readonly event: { id: string; type: string; session_id: string; payload: Record<string, string> };
}

/** A real receiver; `answer` says the status, or keeps silent. */
async function receiver(answer: (told: Told, n: number) => number | null = () => 204) {
  const told: Told[] = [];
  const server = createServer((request: IncomingMessage, response: ServerResponse) => {
    let body = '';
    request.setEncoding('utf8').on('data', (part: string) => {
      body += part;
    });
    request.on('end', () => {
      const one = { headers: request.headers, body, event: JSON.parse(body).event };
      told.push(one);
      const status = answer(one, told.length);
      if (status !== null) response.writeHead(status, { location: '/elsewhere' }).end('x'.repeat(100_000));
    });
  }).listen(0, '127.0.0.1');
  await once(server, 'listening');
  onTestFinished(() => {
    server.closeAllConnections();
    server.close();
  });
  return { told, url: `http://127.0.0.1:${(server.address() as AddressInfo).port}/hook/s3cret` };
}

function tell(t: TestEngine, url: string, over: Partial<Receiver> & { clock?: Clock; log?: never } = {}) {
  const { clock = t.engine.clock, ...rest } = over;
  const [one] = NotifySchema.parse([{ url, events: ['turn.completed', 'session.ended'], ...rest }]);
  const keyed = resolveReceiverKeys([one!], createCredentials({ HOOK: SECRET }));
  const { store, journal, bus } = t.engine;
  const parts = { store, journal, bus, notices: null, clock, log: silentLogger, secrets: [SECRET, 'hush-hush'] };
  const notify = startNotify(keyed, parts)!;
  onTestFinished(() => notify.close());
  return notify;
}
const talk = scenario([{ match: {}, times: 'inf', respond: { text: 'ok' } }]);
const ids = (told: readonly Told[]) => told.map(({ event }) => event.id);
const ended = (t: TestEngine) => t.events.filter((e) => e.type === 'turn.completed').map((e) => e.id);

describe('a receiver', () => {
  // Promise 20.12: A receiver that fails three times is told each event in order, and the signature verifies.
  it('that fails three times and then works is told each event, in order, with a signature that verifies', async () => {
    const t = await startEngine({ scenario: talk });
    const clock = manualClock(Date.now());
    const hook = await receiver((_, n) => [500, 302, 429][n - 1] ?? 200);
    const session = await t.session();
    await t.run(session, 'before it was named');
    tell(t, hook.url, { secret_env: 'HOOK', clock });
    await until(async () => (await t.engine.store.meta(metaKey(t)))?.length === 26);
    const before = ended(t).length;
    await t.run(session, 'one');
    await t.run(session, 'two');
    for (const attempt of [1, 2, 3]) {
      await until(() => hook.told.length === attempt && clock.pending(attempt * 1000 + 1000) > 0);
      clock.advance(2 ** (attempt - 1) * 1000 - 1);
      expect(hook.told).toHaveLength(attempt);
      clock.advance(1);
    }
    await until(() => hook.told.length === 5);
    const [first, second] = ended(t).slice(before);
    expect(ids(hook.told)).toEqual([first, first, first, first, second]);
    for (const { headers, body, event } of hook.told) {
      expect(headers['metis-event-id']).toBe(event.id);
      const [, time, mac] = /^t=(\d+),v1=([0-9a-f]{64})$/.exec(String(headers['metis-signature']))!;
      expect(createHmac('sha256', SECRET).update(`${time}.${body}`).digest('hex')).toBe(mac);
    }
  });

  // Promise 20.12: One that hangs delays neither turns nor another receiver.
  it('that hangs delays neither the turns nor another receiver, and is given up after a day', async () => {
    const t = await startEngine({ scenario: talk });
    const clock = manualClock(Date.now());
    const dead = await receiver(() => null);
    const well = await receiver();
    tell(t, dead.url, { clock });
    tell(t, well.url);
    const session = await t.session();
    for (const text of ['one', 'two', 'three']) await t.run(session, text);
    await until(() => well.told.length === 3);
    expect(ids(well.told)).toEqual(ended(t));
    expect(dead.told).toHaveLength(1);
    clock.advance(25 * 3600_000);
    await until(() => dead.told.length === 2);
    expect(ids(dead.told)).toEqual(ended(t).slice(0, 2));
  });

  // Promise 20.12: a receiver that waits keeps no listener from one look to the next.
  it('that shares its notices with other nodes keeps no listener from one look to the next', async () => {
    const t = await startEngine({ scenario: talk });
    const clock = manualClock();
    let looks = 0;
    const next = async () => {
      looks += 1;
      return [];
    };
    const notices = { next, markSent: async () => {}, alone: async () => {} };
    const [hook] = NotifySchema.parse([{ url: 'http://127.0.0.1:1/hook', events: ['turn.completed'] }]);
    const { store, journal } = t.engine;
    const one = runReceiver(hook!, null, { store, journal, notices, clock, log: silentLogger, fetch, secrets: [] });
    const ending = new AbortController();
    const done = one.work(ending.signal);
    const LOOKS = 20;
    for (let i = 1; i < LOOKS; i++) {
      await until(() => looks === i && clock.pending() === 1);
      if (i % 2 === 0) clock.advance(500);
      else one.wake({ type: 'turn.completed' });
    }
    await until(() => looks >= LOOKS && clock.pending() === 1);
    expect(getEventListeners(ending.signal, 'abort')).toHaveLength(1);
    ending.abort();
    await done;
    expect(clock.pending()).toBe(0);
  });

  it('that was away while the server was killed is told what it missed', async () => {
    const first = await startEngine({ scenario: talk });
    const down = await receiver(() => 503);
    const before = tell(first, down.url);
    await until(async () => (await first.engine.store.meta(metaKey(first))) !== null);
    const session = await first.session();
    await first.run(session, 'one');
    await until(() => down.told.length === 1);
    await first.run(session, 'two');
    // As a kill would: nothing more is written.
    first.engine.journal.commit = () => Promise.reject(new Error('killed'));
    await before.close();
    first.abandon();
    const missed = ended(first);

    const second = await startEngine({ scenario: talk, folder: first.folder });
    down.told.length = 0;
    tell(second, down.url, { clock: manualClock(Date.now()) });
    await until(() => down.told.length === 1);
    expect(ids(down.told)).toEqual(missed.slice(0, 1));
  });

  it('is told of planners alone unless it asks for workers, but always what a worker asks a person', async () => {
    const write = call('write_file', { path: 'a.txt', content: 'new' });
    const t = await startEngine({
      config: { tool_confirmation: { mode: 'approve_all' } },
      scenario: scenario(
        planner({ tool_calls: [delegate('write it')] }, { text: 'done' }),
        worker('write it', { tool_calls: [write] }, { text: 'written' }),
      ),
    });
    const events = ['turn.completed', 'tool.confirmation_requested'] as Receiver['events'];
    const [few, all] = [await receiver(), await receiver()];
    tell(t, few.url, { events });
    tell(t, all.url, { events, include_workers: true });
    await t.run(await t.session(), 'go');
    await until(() => few.told.length >= 2 && all.told.length >= 3);
    const types = (told: readonly Told[]) => told.map(({ event }) => event.type);
    expect(types(few.told)).toEqual(['tool.confirmation_requested', 'turn.completed']);
    expect(types(all.told)).toEqual(['tool.confirmation_requested', 'turn.completed', 'turn.completed']);
  });

  it('gets texts of tool calls cut to 500 characters and scrubbed', async () => {
    const long = `echo sk-ant-${'a'.repeat(40)} hush-hush /etc/secrets/key ${'x'.repeat(2000)}`;
    const t = await startEngine({
      config: { tool_confirmation: { mode: 'strict' } },
      scenario: scenario(planner({ tool_calls: [call('shell', { command: long })] }, { text: 'done' })),
    });
    const hook = await receiver();
    tell(t, hook.url, { events: ['tool.confirmation_requested'] });
    await t.run(await t.session(), 'go');
    await until(() => hook.told.length === 1);
    const { body, event } = hook.told[0]!;
    expect(event.payload.command_summary).toContain('[REDACTED]');
    for (const text of ['sk-ant-', 'hush-hush', '/etc/secrets', 'x'.repeat(501)]) expect(body).not.toContain(text);
  });
});

// Promise 23.2: webhooks carry events of a private session without text.
describe('of a private session', () => {
  it('a receiver gets the same events with no word of what was said or run', async () => {
    const t = await startEngine({
      config: { tool_confirmation: { mode: 'strict' }, server: { default_share: 'private' } },
      scenario: scenario(planner({ tool_calls: [call('shell', { command: 'echo harvest' })] }, { text: 'harvest' })),
    });
    const hook = await receiver();
    tell(t, hook.url, { events: ['tool.confirmation_requested', 'turn.completed'] });
    const session = await t.session();
    await t.run(session, 'harvest');
    await until(() => hook.told.length === 2);
    expect(hook.told.map(({ event }) => event.type)).toEqual(['tool.confirmation_requested', 'turn.completed']);
    expect(hook.told.filter(({ body }) => body.includes('harvest'))).toEqual([]);
    const stored = t.events.find(({ type }) => type === 'tool.confirmation_requested');
    expect(JSON.stringify(stored)).toContain('harvest');
  });
});

describe('the list of receivers', () => {
  const issues = (value: unknown) => NotifySchema.safeParse(value).error?.issues.map((i) => i.message) ?? [];
  const one = { url: 'https://example.org/hook', events: ['turn.failed'] };

  it('takes web addresses alone, each once, and names what may be told', () => {
    expect(issues([one])).toEqual([]);
    for (const url of ['ftp://example.org', 'file:///etc/passwd', 'https://me:pass@example.org', 'nowhere'])
      expect(issues([{ ...one, url }])).toHaveLength(1);
    expect(issues([one, one])).toHaveLength(1);
    expect(issues([{ ...one, events: ['text.delta'] }])).toHaveLength(1);
    expect(issues(Array.from({ length: 11 }, (_, i) => ({ ...one, url: `${one.url}/${i}` })))).toHaveLength(1);
  });

  it('stops the start when the key of a signature is not set', () => {
    const [inherited] = NotifySchema.parse([{ ...one, secret_env: '__proto__' }]);
    expect(() => resolveReceiverKeys([inherited!], createCredentials({}))).toThrow(/__proto__ is not set/);
    const twice = ['http://hook.example/x', 'http://HOOK.example:80/x'].map((url) => ({ ...one, url }));
    expect(NotifySchema.safeParse(twice).success).toBe(false);
    const [keyed] = NotifySchema.parse([{ ...one, secret_env: 'NOT_SET' }]);
    expect(() => resolveReceiverKeys([keyed!], createCredentials({}))).toThrow(
      /notify\.0\.secret_env: NOT_SET is not set/,
    );
  });
});

/** Where the one receiver of a test keeps its place. */
function metaKey(t: TestEngine): string {
  return (t.db.db.prepare("SELECT key FROM meta WHERE key LIKE 'notify:%'").pluck().get() as string | undefined) ?? '';
}
