// Feels a server's pulse from a process of its own: asks /healthz without a pause and tells how long an answer was held.
import { readFileSync } from 'node:fs';
import http from 'node:http';

const [url, pid] = process.argv.slice(2);
const agent = new http.Agent({ keepAlive: true, maxSockets: 1 });
const TICK_MS = 10;
let label = '';
/** Label -> longest hold while it was set. */
const longest = new Map();

/** Processor time the server has used, in milliseconds; null where the system does not tell. */
function used() {
  try {
    const fields = readFileSync(`/proc/${pid}/stat`, 'utf8').split(') ').at(-1).split(' ');
    return (Number(fields[11]) + Number(fields[12])) * TICK_MS;
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
  const [from, before] = [performance.now(), used()];
  const status = await ask().catch(() => 0);
  const after = used();
  const wall = performance.now() - from;
  // On a busy machine an answer waits for the processor too: only what the server itself burnt meanwhile held it up.
  const held = before === null || after === null ? wall : Math.min(wall, after - before);
  for (const name of new Set([current, label])) {
    longest.set(name, Math.max(longest.get(name) ?? 0, status === 200 ? held : Number.POSITIVE_INFINITY));
  }
  await new Promise((resolve) => setTimeout(resolve, 2));
}
