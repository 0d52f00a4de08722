// The proxies of examples/proxy in front of a real server: TLS outside, streams that pass on each piece as it comes.
import { type ChildProcess, spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import fs from 'node:fs';
import https from 'node:https';
import path from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import WebSocket from 'ws';
import { ROOT, temporaryHome } from '../app/metis.ts';
import { type Certificate, makeCertificate } from '../support/certificate.ts';
import { freePort } from '../support/free-port.ts';
import { startReal, startStrictFake } from '../support/real-server.ts';
import { registryAt } from '../support/registry-at.ts';
import { until } from '../support/until.ts';

const NAME = 'metis.example.com';
const isInstalled = (program: string, flag: string) => spawnSync(program, [flag]).error === undefined;

let home: ReturnType<typeof temporaryHome>;
let tls: Certificate;
beforeAll(() => {
  home = temporaryHome();
  tls = makeCertificate(home.path, `DNS:${NAME}`);
});
afterAll(() => home.remove());

interface Ports {
  readonly outside: number;
  /** As the site is to name them, such as `127.0.0.1:8420`. */
  readonly servers: readonly string[];
}

/** The site as it is shipped, with this test's ports and certificate in place of a machine's. */
const PROXIES = {
  nginx: (folder: string, ports: Ports) => {
    const site = fs
      .readFileSync(path.join(ROOT, 'examples/proxy/nginx.conf'), 'utf8')
      .replace('listen 443 ssl', `listen 127.0.0.1:${ports.outside} ssl`)
      .replace(/server 127\.0\.0\.1:8420(.*;)/, (_, rest) => ports.servers.map((at) => `server ${at}${rest}`).join(' '))
      .replace(/ssl_certificate .*;/, `ssl_certificate ${tls.certificate};`)
      .replace(/ssl_certificate_key .*;/, `ssl_certificate_key ${tls.key};`);
    const temporary = ['client_body', 'proxy', 'fastcgi', 'uwsgi', 'scgi'];
    const paths = temporary.map((name) => `${name}_temp_path ${folder}/${name};`).join(' ');
    fs.writeFileSync(
      path.join(folder, 'nginx.conf'),
      `pid ${folder}/pid; error_log ${folder}/log; events {}\nhttp { access_log off; ${paths}\n${site} }\n`,
    );
    return ['nginx', '-p', folder, '-c', path.join(folder, 'nginx.conf'), '-g', 'daemon off; master_process off;'];
  },
  caddy: (folder: string, ports: Ports) => {
    const site = fs
      .readFileSync(path.join(ROOT, 'examples/proxy/Caddyfile'), 'utf8')
      .replace(`${NAME} {`, `https://${NAME}:${ports.outside} {\n\tbind 127.0.0.1\n\ttls ${tls.certificate} ${tls.key}`)
      .replace('127.0.0.1:8420', ports.servers.join(' '))
      // What it says of several nodes.
      .replace(/(?<=name them all above.*\n)(?:\t+# .*\n)+?(?=\t+# Pieces)/, (lines) =>
        ports.servers.length > 1 ? lines.replaceAll(/^\t+# /gm, '') : lines,
      );
    fs.writeFileSync(path.join(folder, 'Caddyfile'), `{\n\tadmin off\n\tauto_https off\n}\n${site}`);
    return ['caddy', 'run', '--adapter', 'caddyfile', '--config', path.join(folder, 'Caddyfile')];
  },
} satisfies Record<string, (folder: string, ports: Ports) => string[]>;

async function startProxyProgram(
  name: keyof typeof PROXIES,
  servers: readonly string[],
): Promise<{ port: number; child: ChildProcess }> {
  const port = await freePort();
  const folder = fs.mkdtempSync(path.join(home.path, name));
  const [program, ...args] = PROXIES[name](folder, { outside: port, servers });
  const env = { PATH: process.env.PATH, HOME: folder };
  const child = spawn(program!, args, { env, stdio: ['ignore', 'ignore', 'pipe'] });
  let said = '';
  child.stderr.setEncoding('utf8').on('data', (text: string) => {
    said += text;
  });
  child.once('exit', (code) => {
    if (code !== 0 && code !== null) console.error(said);
  });
  return { port, child };
}

describe.each([
  ['nginx', 'nginx', '-v'],
  ['caddy', 'caddy', 'version'],
] as const)('%s', (name, program, flag) => {
  it.skipIf(!isInstalled(program, flag))(
    'passes requests, events and sockets on, each piece before the next',
    async () => {
      const fake = await startStrictFake(() => ({ text: 'The quick brown fox.', delta: 4, after: 5, ending: 'stall' }));
      const server = await startReal({
        folder: path.join(home.path, `data-${name}`),
        registry: registryAt(fake),
        config: { server: { allowed_hosts: [NAME] } },
      });
      const { port, child } = await startProxyProgram(name, [new URL(server.url).host]);
      try {
        const headers = { host: NAME, 'content-type': 'application/json' };
        const options = { host: '127.0.0.1', port, servername: NAME, ca: fs.readFileSync(tls.authority), headers };
        const request = async (method: string, target: string, body = '', more = {}) => {
          const sent = https.request({ ...options, method, path: target, headers: { ...headers, ...more } });
          sent.end(body);
          const [response] = (await once(sent, 'response')) as [import('node:http').IncomingMessage];
          return response.setEncoding('utf8');
        };
        const json = async (response: AsyncIterable<string>) => {
          let text = '';
          for await (const piece of response) text += piece;
          return JSON.parse(text);
        };
        await until(async () => (await request('GET', '/healthz').catch(() => null)) !== null);

        const model = 'anthropic:claude-opus-4-7';
        const opened = await request(
          'POST',
          '/sessions',
          JSON.stringify({ workspace_path: home.path, initial_active_model: model }),
        );
        expect(opened.statusCode).toBe(201);
        const { id } = await json(opened);
        expect((await request('GET', '/metrics')).statusCode).toBe(404);

        const at = { servername: NAME, ca: options.ca, headers: { host: NAME, origin: `https://${NAME}` } };
        const socket = new WebSocket(`wss://127.0.0.1:${port}/sessions/${id}/stream`, at);
        socket.on('error', () => {});
        socket.on('open', () => socket.send('{"type": "subscribe"}'));
        let frames = '';
        socket.on('message', (data) => {
          frames += String(data);
        });
        const events = await request('GET', `/sessions/${id}/events`, '', { accept: 'text/event-stream' });
        let lines = '';
        events.on('data', (text: string) => {
          lines += text;
        });
        events.on('error', () => {});
        await until(() => frames.includes('subscribe_ack') && lines.includes('retry:'));
        const { turn_id } = await json(await request('POST', `/sessions/${id}/turns`, '{"content": "hello"}'));
        // The provider says no more, and the turn does not end: what is here was not kept back.
        await until(() => frames.includes('text.delta') && lines.includes('text.delta'));
        expect(server.events.some((event) => event.type === 'turn.completed')).toBe(false);

        expect((await request('POST', `/sessions/${id}/turns/${turn_id}/cancel`, '{}')).statusCode).toBe(202);
        await until(() => frames.includes('turn.cancelled') && lines.includes('turn.cancelled'));
        socket.terminate();
        events.destroy();
      } finally {
        const ended = once(child, 'exit');
        child.kill('SIGKILL');
        await ended;
      }
    },
  );

  it.skipIf(!isInstalled(program, flag))(
    'passes what comes while a node stops to another one, and asks each under a name that it serves',
    async () => {
      const fake = await startStrictFake(() => ({ text: 'The quick brown fox.', delta: 4, after: 5, ending: 'stall' }));
      const token = 'a'.repeat(40);
      const nodes = await Promise.all(
        ['one', 'two'].map((part) =>
          startReal({
            folder: path.join(home.path, `${name}-${part}`),
            registry: registryAt(fake),
            config: {
              shutdown: { drain_seconds: 10 },
              server: { host: '0.0.0.0', auth_tokens: [token], workspace_roots: [home.path], allowed_hosts: [NAME] },
            },
          }),
        ),
      );
      // An address that the server answers to no client: only the name of the site is listed.
      const { port, child } = await startProxyProgram(
        name,
        nodes.map(({ url }) => `127.0.0.2:${new URL(url).port}`),
      );
      const headers = { authorization: `Bearer ${token}` };
      const target = {
        host: '127.0.0.1',
        port,
        servername: NAME,
        ca: fs.readFileSync(tls.authority),
        path: '/sessions',
      };
      const ask = async () => {
        const sent = https.get({ ...target, headers: { ...headers, host: NAME } });
        const [response] = (await once(sent, 'response')) as [import('node:http').IncomingMessage];
        response.resume();
        return response.statusCode;
      };
      try {
        await until(async () => (await ask().catch(() => 0)) === 200);
        const stopping = nodes[1]!;
        const model = 'anthropic:claude-opus-4-7';
        const body = { workspace_path: home.path, initial_active_model: model };
        const { id } = (await stopping.call('POST', '/sessions', body, headers)).body;
        await stopping.call('POST', `/sessions/${id}/turns`, { content: 'hello' }, headers);
        await stopping.event('llm.call_started');
        const stopped = stopping.close();
        const direct = async () => (await stopping.call('GET', '/sessions', undefined, headers)).status;
        await until(async () => (await direct()) === 503);
        await until(async () => {
          for (let i = 0; i < 20; i++) if ((await ask()) !== 200) return false;
          return true;
        });
        expect(await direct()).toBe(503);
        await stopped;
      } finally {
        const ended = once(child, 'exit');
        child.kill('SIGKILL');
        await ended;
      }
    },
  );
});
