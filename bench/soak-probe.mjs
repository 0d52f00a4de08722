// Preloaded into a server under soak: on SIGUSR2 it writes what it holds to the file named in SOAK_PROBE.
import fs from 'node:fs';
import { queryObjects } from 'node:v8';

const Timeout = (() => {
  const timer = setTimeout(() => {});
  clearTimeout(timer);
  return timer.constructor;
})();

process.on('SIGUSR2', () => {
  globalThis.gc?.();
  const resources = {};
  for (const kind of process.getActiveResourcesInfo()) resources[kind] = (resources[kind] ?? 0) + 1;
  // Those too that do not keep the process alive, as all of the server's.
  const timers = queryObjects(Timeout, { format: 'count' });
  const listeners = process.eventNames().reduce((sum, name) => sum + process.listenerCount(name), 0);
  const heapMib = process.memoryUsage().heapUsed / 2 ** 20;
  fs.writeFileSync(`${process.env.SOAK_PROBE}.part`, JSON.stringify({ heapMib, listeners, resources, timers }));
  fs.renameSync(`${process.env.SOAK_PROBE}.part`, process.env.SOAK_PROBE);
});
