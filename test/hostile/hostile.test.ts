// Hostile files, bodies, schemas and tool arguments against a server process: it answers, it stays, it says no in one line.
import { type ChildProcess, fork } from 'node:child_process';
import { once } from 'node:events';
import fs from 'node:fs';
import path from 'node:path';
import { afterAll, beforeAll, expect, it } from 'vitest';
import type { Started } from '../app/metis.ts';
import { type Json, startWorld, type World } from '../crash/world.ts';
import type { FakeAnswer, FakeCall } from '../support/fake-provider.ts';
import { type HostileCase, knownCases, variations } from './corpus.ts';

const GENERATED = Number(process.env.HOSTILE_CASES ?? 24);
const SEED = Number(process.env.HOSTILE_SEED ?? 20_260);
const LIMIT_MS = 200;
/** Where others had the processor meanwhile: what is bounded by its time is begun again, and every step takes longer. */
const SHARED_LIMIT_MS = 3 * LIMIT_MS;

let world: World;
let server: Started;
let pulse: ChildProcess;
let session: string;
let current: HostileCase;
/** Cases whose schema a worker's answer was checked against. */
const checked = new Set<string>();
/** Cases of which the planner was told no reason. */
const broken = new Set<string>();

/** The planner calls one tool with what the case says; a worker answers with what an expression finds hard. */
function answer(call: FakeCall): FakeAnswer {
  if (call.wire === 'openai') {
    checked.add(current.name);
    return {
      text: JSON.stringify({ s: `${'a'.repeat(500)}!`, list: Array(2000).fill({ a: {} }), ...tree(40) }),
      delta: 65_536,
    };
  }
  if (call.results.some((result) => result.includes('internal error'))) broken.add(current.name);
  if (call.results.length > 0) return { text: 'done' };
  const json =
    current.kind === 'schema'
      ? `{"tier":"fast","task":"look","output_schema":${current.text}}`
      : current.kind === 'arguments'
        ? current.text
        : '{"path":"a.txt","content":"a"}';
  const name = current.kind === 'schema' ? 'delegate' : 'write_file';
  return { tool_calls: [{ name, json }], delta: 65_536 };
}
function tree(depth: number): object {
  return depth === 0 ? {} : { a: tree(depth - 1) };
}

beforeAll(async () => {
  world = await startWorld(answer);
  server = await world.serve();
  session = await world.session();
  const script = path.join(import.meta.dirname, 'pulse.mjs');
  pulse = fork(script, [world.url, String(server.child.pid)], { execArgv: [] });
});
afterAll(async () => {
  pulse?.kill();
  await world?.close();
});

async function post(where: string, body: string, headers: Record<string, string> = {}): Promise<Json> {
  const response = await fetch(`${world.url}${where}`, {
    method: 'POST',
    headers: { 'content-type': 'application/json', ...headers },
    body,
  });
  const answer = { ...(JSON.parse(await response.text()) as object), http: response.status } as Json;
  if (response.status >= 400) {
    expect(response.status).toBeLessThan(500);
    expect(answer.error.message).toMatch(/^[^\n]{1,700}$/);
  }
  return answer;
}

async function turn(id: string): Promise<void> {
  const ended = await post(`/sessions/${id}/turns`, '{"content":"go"}', { prefer: 'wait=60' });
  expect(ended).toMatchObject({ http: 200, status: 'completed' });
}

let runs = 0;
const DELIVERY: Readonly<Record<HostileCase['kind'], (text: string) => Promise<void>>> = {
  async policy(text) {
    const checked = await post('/routing/check', JSON.stringify({ policy_yaml: text }));
    if (checked.http !== 200) return;
    for (const line of checked.errors) expect(line).toMatch(/^[^\n]{1,700}$/);
    expect(checked.errors.length).toBeLessThan(102);
  },
  async workspace(text) {
    const folder = path.join(world.home, `workspace-${runs++}`);
    fs.mkdirSync(path.join(folder, '.metis'), { recursive: true });
    for (const name of ['routing.yaml', 'trust.yaml']) fs.writeFileSync(path.join(folder, '.metis', name), text);
    fs.writeFileSync(path.join(folder, 'AGENTS.md'), `---\n${text}\n---\nBe brief.`);
    await turn(await world.session({ workspace_path: folder }));
  },
  async body(text) {
    const headers = { 'idempotency-key': `key-${runs++}` };
    for (const where of ['/sessions', `/sessions/${session}/turns`, '/routing/explain'])
      await post(where, text, headers);
  },
  arguments: async () => turn(await world.session()),
  schema: async () => turn(await world.session()),
};

it(
  `a server stays and answers through the known cases and ${GENERATED} variations (HOSTILE_SEED=${SEED})`,
  async () => {
    const wrong: string[] = [];
    for (const one of [...knownCases(), ...variations(SEED, GENERATED)]) {
      const label = `${one.kind}: ${one.name}`;
      current = one;
      pulse.send(label);
      await DELIVERY[one.kind](one.text).catch((error: unknown) => {
        wrong.push(`${label}: ${String(error).slice(0, 600)}`);
      });
      // Without the server every further case would only say so again.
      if (server.child.exitCode !== null || server.child.signalCode !== null) break;
    }
    expect(wrong).toEqual([]);
    expect([...broken]).toEqual([]);
    expect([...checked]).toEqual(
      expect.arrayContaining(['an expression that backtracks', 'references that double', 'items that differ']),
    );
    expect([server.child.exitCode, server.child.signalCode]).toEqual([null, null]);

    pulse.send('report');
    const [held] = (await once(pulse, 'message')) as [[string, { alone: number; shared: number }][]];
    expect(held.length).toBeGreaterThan(10);
    expect(held.filter(([, { alone, shared }]) => alone > LIMIT_MS || shared > SHARED_LIMIT_MS)).toEqual([]);
  },
  120_000 + GENERATED * 1000,
);
