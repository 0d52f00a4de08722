// The processes of a run: fake provider, relay, server. Started here, ended here, and no others.
import { spawn } from 'node:child_process';
import fs from 'node:fs';
import path from 'node:path';
import { performance } from 'node:perf_hooks';

const START_LIMIT_MS = 120_000;
const STOP_LIMIT_MS = 15_000;
const ADDRESS = /listens on (http:\/\/[\d.]+:\d+)/;
const root = path.resolve(import.meta.dirname, '..');
/** What `npm start` gives Node.js. */
const { scripts } = JSON.parse(fs.readFileSync(path.join(root, 'package.json'), 'utf8'));
const NODE_FLAGS = scripts.start.match(/--\S+/g);
const running = new Set();

/**
 * Starts a node process and waits for the line that names its address.
 * @param log file for its stderr
 */
async function start(name, args, { log, env = process.env, execArgv = [] }) {
  const stderr = fs.openSync(log, 'a');
  const began = performance.now();
  const child = spawn(process.execPath, [...execArgv, ...args], { env, stdio: ['pipe', 'pipe', stderr] });
  fs.closeSync(stderr);
  running.add(child);
  const exited = new Promise((resolve) => child.once('exit', resolve)).then(() => running.delete(child));
  const url = await new Promise((resolve, reject) => {
    let said = '';
    const timer = setTimeout(() => reject(new Error(`${name} did not start in time`)), START_LIMIT_MS);
    child.stdout.on('data', (piece) => {
      if (said.length < 10_000) said += piece;
      const match = ADDRESS.exec(said);
      if (!match) return;
      clearTimeout(timer);
      resolve(match[1]);
    });
    void exited.then(() => {
      clearTimeout(timer);
      reject(new Error(`${name} ended while starting:\n${said}${fs.readFileSync(log, 'utf8').slice(-2000)}`));
    });
  });
  const startMs = performance.now() - began;
  return {
    url,
    pid: child.pid,
    /** Milliseconds from the start of the process to its listening. */
    startMs,
    async stop() {
      const limit = setTimeout(() => child.kill('SIGKILL'), STOP_LIMIT_MS);
      child.kill('SIGTERM');
      await exited;
      clearTimeout(limit);
    },
  };
}

export function startProvider(folder) {
  return start('the fake provider', [path.join(root, 'bench', 'fake-provider.mjs')], {
    log: path.join(folder, 'provider.log'),
  });
}

let relays = 0;
export function startRelay(folder, provider) {
  relays += 1;
  const file = path.join(folder, `relay-${relays}.db`);
  return start('the relay', [path.join(root, 'bench', 'relay.mjs'), provider.url, file], {
    log: path.join(folder, 'relay.log'),
  });
}

export function startBareRelay(folder, provider) {
  return start('the bare relay', [path.join(root, 'bench', 'bare-relay.mjs'), provider.url], {
    log: path.join(folder, 'bare-relay.log'),
  });
}

/**
 * The server as it ships, with the fake provider as its only one.
 * @param data its data folder, made when missing
 * @param profile folder for a CPU profile, null for none
 * @param streams how many it may have open at once, null for its default
 * @param learns false: finished turns are neither judged nor recorded
 * @param keys more of the configuration
 */
export function startServer(data, provider, { profile = null, streams = null, learns = true, keys = {} } = {}) {
  fs.mkdirSync(data, { recursive: true });
  fs.writeFileSync(path.join(data, 'registry.yaml'), registry(provider.url));
  const execArgv = [...NODE_FLAGS, ...(profile === null ? [] : ['--cpu-prof', `--cpu-prof-dir=${profile}`])];
  const more = streams === null ? [] : ['--set', `stream.max_connections=${streams}`];
  if (!learns) more.push('--set', 'pattern.mode=off', '--set', 'eval.disabled=true');
  for (const [key, value] of Object.entries(keys)) more.push('--set', `${key}=${value}`);
  return start('the server', [path.join(root, 'dist', 'main.js'), 'serve', '--port', '0', '--data', data, ...more], {
    log: path.join(data, 'server.log'),
    env: serverEnvironment(),
    execArgv,
  });
}

/** Ends whatever a failed run left behind. */
export function killAll() {
  for (const child of running) child.kill('SIGKILL');
}

/** Nothing of the caller's own settings or keys may change what is measured. */
export function serverEnvironment() {
  const foreign = /^(METIS_|HOST$|PORT$)|(_API_KEY|_BASE_URL|_TOKEN)$/;
  return Object.fromEntries(Object.entries(process.env).filter(([name]) => !foreign.test(name)));
}

/** The registry file of a server whose models all live at `origin`. */
export function registry(origin) {
  const model = (adapter, tier) =>
    JSON.stringify({
      adapter,
      tier,
      pricing_id: 'anthropic:claude-sonnet-5',
      capabilities: {
        max_context_tokens: 1_000_000,
        max_output_tokens: 64_000,
        supports_images: true,
        supports_structured_output: true,
        supports_prompt_caching: true,
        accepted_image_media_types: ['image/png'],
      },
    });
  return `adapters:
  messages: { type: anthropic, base_url: "${origin}", key_optional: true }
  chat: { type: openai, base_url: "${origin}/v1", key_optional: true }
models:
  messages:planner: ${model('messages', 'balanced')}
  messages:worker: ${model('messages', 'fast')}
  chat:planner: ${model('chat', 'balanced')}
`;
}

/** Process -> thread -> the milliseconds it has used; of a thread that ended they stay. */
const threads = new Map();

/**
 * Milliseconds of processor time a process has used, of the threads that were seen; null where the system does not say.
 * They are counted in nanoseconds, where the whole process has steps of 10 ms.
 */
export function cpuMs(pid) {
  const used = threads.get(pid) ?? new Map();
  threads.set(pid, used);
  for (const thread of entriesOf(`/proc/${pid}/task`)) {
    const ms = runMs(`/proc/${pid}/task/${thread}/schedstat`);
    if (ms !== null) used.set(thread, ms);
  }
  return used.size === 0 ? null : [...used.values()].reduce((sum, ms) => sum + ms, 0);
}

function runMs(file) {
  try {
    return Number(fs.readFileSync(file, 'utf8').split(' ')[0]) / 1e6;
  } catch {
    return null;
  }
}

function entriesOf(folder) {
  try {
    return fs.readdirSync(folder);
  } catch {
    return [];
  }
}

/** Resident memory of a process in MiB; null where the system does not say. */
export function residentMib(pid) {
  try {
    const match = /VmRSS:\s+(\d+) kB/.exec(fs.readFileSync(`/proc/${pid}/status`, 'utf8'));
    return match ? Number(match[1]) / 1024 : null;
  } catch {
    return null;
  }
}
