// A request of the agent that fails once: the editor still gets everything, and later prompts are answered (19 §4).
import { once } from 'node:events';
import http from 'node:http';
import net, { type AddressInfo } from 'node:net';
import { expect, onTestFinished, test } from 'vitest';
import { createPrompts } from '#acp/prompts.ts';
import { acpIn, doorHome, serveIn, shown, usage } from '../support/doors.ts';

/** Passes everything on to a server, but what `breaks` names: that is answered with 500. */
async function startBreaking(url: string, breaks: (method: string, path: string) => boolean): Promise<string> {
  const { host, hostname, port } = new URL(url);
  const sockets = new Set<net.Socket>();
  const server = http.createServer((request, response) => {
    const { method = '', url: path = '' } = request;
    if (breaks(method, path)) return void response.writeHead(500, { 'content-type': 'application/json' }).end('{}');
    const passed = http.request({ hostname, port, method, path, headers: { ...request.headers, host } }, (answer) => {
      response.writeHead(answer.statusCode ?? 500, answer.headers);
      answer.pipe(response);
    });
    passed.on('error', () => response.destroy());
    request.pipe(passed);
  });
  server.on('upgrade', (request, near: net.Socket) => {
    const far = net.connect({ host: hostname, port: Number(port) });
    const headers = Object.entries({ ...request.headers, host }).map(([name, value]) => `${name}: ${value}\r\n`);
    far.write(`GET ${request.url} HTTP/1.1\r\n${headers.join('')}\r\n`);
    near.pipe(far).pipe(near);
    for (const socket of [near, far]) {
      sockets.add(socket);
      socket.on('error', () => {
        near.destroy();
        far.destroy();
      });
    }
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  onTestFinished(async () => {
    for (const socket of sockets) socket.destroy();
    server.closeAllConnections();
    server.close();
    await once(server, 'close');
  });
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
}

// Promise 19.33: a failed request in mid-prompt.
test('a failed request in mid-prompt loses nothing, and the prompts behind it are answered', async () => {
  const answers = ['One.', 'Two.'].map((text, i) => ({
    match: { role: 'planner', turn: i + 1 },
    respond: { text, usage },
  }));
  const home = doorHome(answers);
  const { url } = await serveIn(home);
  let failures = 2;
  const broken = await startBreaking(
    url,
    (method, path) => method === 'GET' && path.includes('/messages') && failures-- > 0,
  );
  const editor = await acpIn(home, { args: ['--server', broken] });
  const { sessionId } = await editor.open();
  expect(await editor.say(sessionId, 'first')).toEqual({ stopReason: 'end_turn' });
  expect(failures).toBeLessThan(1);
  expect(await editor.say(sessionId, 'second')).toEqual({ stopReason: 'end_turn' });
  expect(shown(editor.updates).lines).toEqual(['agent_message_chunk: One.Two.']);
});

// Promise 19.33: a session that cannot be watched any more.
test('a session that is no longer watched says so before a prompt is sent', async () => {
  const home = doorHome([{ match: {}, times: 'inf', respond: { text: 'done', usage } }]);
  const { url, client } = await serveIn(home);
  const editor = await acpIn(home, { args: ['--server', url] });
  const { sessionId } = await editor.open();
  await client.endSession(sessionId);
  await expect(editor.say(sessionId, 'too late')).rejects.toMatchObject({ code: -32603 });
  const prompts = createPrompts();
  const before = prompts.end('t1');
  const why = new Error('the session has ended');
  prompts.rejectAll(why);
  await expect(before).rejects.toBe(why);
  await expect(prompts.end('t2')).rejects.toBe(why);
  expect(() => prompts.requireWatched()).toThrow(why);
});
