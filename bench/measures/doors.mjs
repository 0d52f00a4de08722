// What the doors add: a delegation over MCP beside the same over REST, and a piece of text to an editor over ACP beside
// the same to a subscriber. Both doors are processes of their own.
import { spawn } from 'node:child_process';
import { performance } from 'node:perf_hooks';
import { fileURLToPath } from 'node:url';
import { delays, marker, openSession } from '../client.mjs';
import { aboveAtMost } from '../limits.mjs';
import { percentile } from '../stats.mjs';

export const name = 'doors';

const MAIN = fileURLToPath(new URL('../../dist/main.js', import.meta.url));
const CALLS = 60;
const RATE = 200;
const SECONDS = 3;
const MORE_MS = 5;

export async function measure(bench) {
  const mcp = await startMcp(bench);
  const acp = await startAcp(bench);
  try {
    const task = { tier: 'fast', task: marker({ chunks: 1 }) };
    const { id } = await bench.client.post('/sessions', { workspace_path: bench.workspace }, 201);
    const rest = async () => {
      const headers = { 'content-type': 'application/json', prefer: 'wait=60' };
      const target = `${bench.server.url}/sessions/${id}/delegations`;
      const answer = await fetch(target, { method: 'POST', headers, body: JSON.stringify(task) });
      if (!(await answer.json()).success) throw new Error('a delegation failed');
    };
    const over = () => mcp.ask('tools/call', { name: 'delegate', arguments: task });
    const calls = await bench.rounds({
      relay: () => medianOf(rest, bench.quick),
      metis: () => medianOf(over, bench.quick),
    });
    const told = await bench.rounds({ metis: () => acp.spoken(bench.quick) });
    const of = (figure) => ({
      metis: told.metis.map((r) => r.editor[figure]),
      relay: told.metis.map((r) => r.subscriber[figure]),
    });
    const limited = { unit: 'ms', better: 'lower', limit: aboveAtMost(MORE_MS) };
    return [
      { row: 'delegation over MCP, REST beside it, p50', ...limited, ...calls },
      { row: 'piece to editor, subscriber beside it, p95', ...limited, ...of('p95') },
    ];
  } finally {
    mcp.stop();
    acp.stop();
  }
}

async function medianOf(call, quick) {
  const took = [];
  for (let i = 0; i < (quick ? CALLS / 6 : CALLS); i++) {
    const began = performance.now();
    await call();
    took.push(performance.now() - began);
  }
  return percentile(took, 50);
}

async function startMcp(bench) {
  const door = startDoor(['mcp', '--workspace', bench.workspace], bench);
  const clientInfo = { name: 'bench', version: '1' };
  await door.ask('initialize', { protocolVersion: '2025-11-25', capabilities: {}, clientInfo });
  door.tell('notifications/initialized', {});
  return door;
}

async function startAcp(bench) {
  const door = startDoor(['acp'], bench);
  await door.ask('initialize', { protocolVersion: 1, clientCapabilities: {} });
  return {
    ...door,
    /** Delays of the same turns to an editor and to a subscriber. */
    async spoken(quick) {
      const session = await openSession(bench.client, { workspace: bench.workspace, model: bench.model });
      const editor = [];
      const subscriber = [];
      session.subscriber.watchDeltas((took) => subscriber.push(took));
      await door.ask('session/resume', { sessionId: session.id, cwd: bench.workspace });
      door.watch((data) => editor.push(...delays(data)));
      await session.turn(marker({ chunks: RATE * (quick ? 1 : SECONDS), rate: RATE }));
      await door.ask('session/close', { sessionId: session.id });
      door.watch(null);
      session.close();
      const p95 = (all) => ({ p95: percentile(all, 95) / 1e6 });
      return { editor: p95(editor), subscriber: p95(subscriber) };
    },
  };
}

function startDoor(args, { server }) {
  const child = spawn(process.execPath, [MAIN, ...args, '--server', server.url], {
    stdio: ['pipe', 'pipe', 'inherit'],
  });
  const open = new Map();
  let watch = null;
  let rest = '';
  let last = 0;
  child.stdout.on('data', (data) => {
    watch?.(data);
    const lines = `${rest}${data}`.split('\n');
    rest = lines.pop();
    for (const line of lines) {
      const { id, result, error } = JSON.parse(line);
      if (id === undefined || !open.has(id)) continue;
      const { resolve, reject } = open.get(id);
      open.delete(id);
      if (error) reject(new Error(JSON.stringify(error)));
      else resolve(result);
    }
  });
  const send = (message) => child.stdin.write(`${JSON.stringify({ jsonrpc: '2.0', ...message })}\n`);
  return {
    tell: (method, params) => send({ method, params }),
    ask: (method, params) =>
      new Promise((resolve, reject) => {
        last += 1;
        open.set(last, { resolve, reject });
        send({ id: last, method, params });
      }),
    watch(look) {
      watch = look;
    },
    stop: () => child.kill('SIGTERM'),
  };
}
