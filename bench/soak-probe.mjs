// Preloaded into a server under soak: on SIGUSR2 it writes what it holds to the file named in SOAK_PROBE.
import fs from 'node:fs';

process.on('SIGUSR2', () => {
  globalThis.gc?.();
  const resources = {};
  for (const kind of process.getActiveResourcesInfo()) resources[kind] = (resources[kind] ?? 0) + 1;
  const listeners = process.eventNames().reduce((sum, name) => sum + process.listenerCount(name), 0);
  const heapMib = process.memoryUsage().heapUsed / 2 ** 20;
  fs.writeFileSync(`${process.env.SOAK_PROBE}.part`, JSON.stringify({ heapMib, listeners, resources }));
  fs.renameSync(`${process.env.SOAK_PROBE}.part`, process.env.SOAK_PROBE);
});
