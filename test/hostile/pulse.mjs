// Feels a server's pulse from a process of its own: asks /healthz without a pause and tells how long an answer was held.
import { readFileSync } from 'node:fs';
import http from 'node:http';
import os from 'node:os';

const [url, pid] = process.argv.slice(2);
const agent = new http.Agent({ keepAlive: true, maxSockets: 1 });
let label = '';
/** Label -> longest hold while it was set, in milliseconds: where the processor was the server's own, and where it was shared. */
const longest = new Map();
/** Of the time that the server ran; beyond it the processor was shared. */
const MAX_WAIT = 0.1;

/** What the server's main thread has run, and waited for a processor, in milliseconds; null where the system does not tell. */
function times() {
  try {
    const [ran, waited] = readFileSync(`/proc/${pid}/schedstat`, 'utf8').split(' ');
    return { ran: Number(ran) / 1e6, waited: Number(waited) / 1e6 };
  } catch {
    return null;
  }
}

function ask() {
  return new Promise((resolve, reject) => {
    http
      .get(`${url}/healthz`, { agent }, (answer) => {
        answer.resume().once('end', () => resolve(answer.statusCode));
      })
      .once('error', reject);
  });
}

process.on('message', (message) => {
  if (message === 'report') process.send([...longest]);
  else label = message;
});

for (;;) {
  const current = label;
  const [from, before] = [performance.now(), times()];
  const status = await ask().catch(() => 0);
  const after = times();
  const wall = performance.now() - from;
  // On a busy machine an answer waits for the processor too: only what the server itself burnt meanwhile held it up.
  const ran = before && after ? after.ran - before.ran : wall;
  const isShared =
    before && after ? after.waited - before.waited > MAX_WAIT * ran : os.loadavg()[0] > os.availableParallelism();
  const held = status === 200 ? Math.min(wall, ran) : Number.POSITIVE_INFINITY;
  for (const name of new Set([current, label])) {
    const known = longest.get(name) ?? { alone: 0, shared: 0 };
    const kind = isShared ? 'shared' : 'alone';
    longest.set(name, { ...known, [kind]: Math.max(known[kind], held) });
  }
  await new Promise((resolve) => setTimeout(resolve, 2));
}
