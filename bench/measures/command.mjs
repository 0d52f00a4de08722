// What a person waits for at the command line before anything is asked of a server.
import { execFile } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { timed } from '../client.mjs';
import { atMost } from '../limits.mjs';
import { median } from '../stats.mjs';

export const name = 'command';

const MAIN = fileURLToPath(new URL('../../dist/main.js', import.meta.url));
const TIMES = 20;
const LIMIT_MS = 120;
const run = promisify(execFile);

export async function measure(bench) {
  const several = async (...args) => {
    const all = [];
    for (let i = 0; i < (bench.quick ? TIMES / 4 : TIMES); i++) {
      all.push(await timed(() => run(process.execPath, args)));
    }
    return median(all);
  };
  const rounds = await bench.rounds({
    relay: () => several('--eval', '0'),
    metis: () => several(MAIN, '--help'),
  });
  const row = { row: '`metis --help`, Node.js alone beside it', unit: 'ms', better: 'lower' };
  return [{ ...row, ...rounds, limit: atMost(LIMIT_MS) }];
}
