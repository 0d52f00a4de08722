// Writes test/fixtures/<version>.db.gz and .json: a database of this version with the demo's job and a turn cut by a crash,
// and what it holds as later versions must still read it. Run once for each release; a fixture is never made again.
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { gzipSync } from 'node:zlib';
import Database from 'better-sqlite3';
import { canonicalJson, sha256Hex } from '#protocol/text/canonical-json.ts';

const root = path.resolve(import.meta.dirname, '..');
const { version } = JSON.parse(fs.readFileSync(path.join(root, 'package.json'), 'utf8'));
const target = path.join(root, 'test', 'fixtures', version);
if (fs.existsSync(`${target}.db.gz`)) throw new Error(`${target}.db.gz is there already; raise the version first`);
const folder = fs.mkdtempSync(path.join(os.tmpdir(), 'metis-fixture-'));
const workspace = path.join(folder, 'auth-refactor');
fs.cpSync(path.join(root, 'examples', 'auth-refactor'), workspace, { recursive: true });

const CRASH = JSON.stringify({
  version: 1,
  rules: [
    {
      match: { role: 'planner' },
      respond: { text: 'One moment.', tool_calls: [{ name: 'delegate', input: { tier: 'fast', task: 'never ends' } }] },
    },
    { match: { role: 'worker' }, times: 'inf', respond: { hang: true } },
  ],
});

try {
  await played(path.join(root, 'config', 'scenarios', 'auth-refactor.yaml'), 'SIGTERM', async (post) => {
    const turn = await post({ content: 'Put the repeated checks into one place.' }, { prefer: 'wait=120' });
    if (turn.status !== 'completed') throw new Error(`the demo's turn ended as ${turn.status}`);
  });
  const scenario = path.join(folder, 'crash.yaml');
  fs.writeFileSync(scenario, CRASH);
  await played(scenario, 'SIGKILL', async (post, get, session) => {
    await post({ content: 'Wait for a worker.' });
    const called = async () =>
      (await get(`/sessions/${session}/events?include_worker_sessions=true&types=llm.call_started`)).events;
    while ((await called()).length < 2);
  });
  write();
} finally {
  fs.rmSync(folder, { recursive: true, force: true });
}

/** A server whose models play the scenario; a session of its own; and the end of the process as told. */
async function played(scenario, signal, use) {
  const shipped = fs.readFileSync(path.join(root, 'config', 'registry.yaml'), 'utf8');
  const registry = path.join(folder, 'registry.yaml');
  const own = `scripted: { type: scripted, scenario: ${JSON.stringify(scenario)} }`;
  fs.writeFileSync(registry, shipped.replace('scripted: { type: scripted }', own));
  const settings = [`registry.path=${registry}`, 'tool_confirmation.mode=approve_all', 'log.level=error'];
  const args = ['serve', '--port', '0', '--data', path.join(folder, 'data'), ...settings.flatMap((s) => ['--set', s])];
  const server = spawn(process.execPath, [path.join(root, 'dist', 'main.js'), ...args], {
    env: { PATH: process.env.PATH, HOME: folder },
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  const ended = once(server, 'close');
  let said = '';
  for await (const piece of server.stdout.iterator({ destroyOnReturn: false })) {
    said += piece;
    if (said.includes('listens on')) break;
  }
  const base = /listens on (\S+?),/.exec(said)[1];
  const post = async (where, body, headers = {}) => {
    const sent = { method: 'POST', headers: { 'content-type': 'application/json', ...headers } };
    const answer = await fetch(base + where, { ...sent, body: JSON.stringify(body) });
    if (!answer.ok) throw new Error(await answer.text());
    return answer.json();
  };
  const get = async (where) => (await fetch(base + where)).json();
  const { id } = await post('/sessions', { workspace_path: workspace, initial_active_model: 'scripted:deep' });
  await use((body, headers) => post(`/sessions/${id}/turns`, body, headers), get, id);
  server.kill(signal);
  await ended;
}

function write() {
  const copy = path.join(folder, 'copy.db');
  const db = new Database(path.join(folder, 'data', 'metis.db'));
  // The last process was killed: this takes up what it left in its log.
  db.prepare('VACUUM INTO ?').run(copy);
  const sessions = db.prepare('SELECT id FROM sessions ORDER BY id').pluck().all();
  const messages = db.prepare('SELECT id, role, content_json FROM messages WHERE session_id = ? ORDER BY id');
  const cost = db
    .prepare('SELECT CAST(coalesce(sum(cost_pusd), 0) AS TEXT) FROM llm_calls WHERE session_id = ?')
    .pluck();
  const open = db.prepare('SELECT id, session_id FROM turns WHERE ended_at IS NULL ORDER BY id').all();
  const delegations = db.prepare("SELECT tool_use_id FROM delegations WHERE status = 'running'").pluck().all();
  const expected = {
    sessions: sessions.map((id) => ({
      id,
      cost_pusd: cost.get(id),
      messages: messages
        .all(id)
        .map((m) => ({ id: m.id, role: m.role, content: sha256Hex(canonicalJson(JSON.parse(m.content_json))) })),
    })),
    open_turns: open,
    open_delegations: delegations,
  };
  db.close();
  fs.mkdirSync(path.dirname(target), { recursive: true });
  fs.writeFileSync(`${target}.db.gz`, gzipSync(fs.readFileSync(copy), { level: 9 }));
  fs.writeFileSync(`${target}.json`, `${JSON.stringify(expected, null, 2)}\n`);
}
