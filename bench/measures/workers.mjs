// A workspace with 1,000 named workers: all of them read and checked for the first time, and again when one has changed.
// It runs in this process; beside it stands what reading the same files takes.
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { performance } from 'node:perf_hooks';
import { silentLogger } from '#core/ports/logger.ts';
import { createWorkerLibrary } from '#tools/workspace/worker-files.ts';

export const name = 'workers';

const WORKERS = 1000;
const TEXT = (i) => `description: Worker ${i}
instructions: |
  You do one thing, and do it well.
model: haiku
sandboxes:
  input: { path: data, allowed_suffixes: [.md] }
tools: [shell]
tool_rules:
  shell: { approval_required: true }
`;

export async function measure(bench) {
  const root = fs.realpathSync(fs.mkdtempSync(path.join(os.tmpdir(), 'metis-bench-')));
  const folder = path.join(root, 'workers');
  fs.mkdirSync(folder);
  for (let i = 0; i < WORKERS; i++) fs.writeFileSync(path.join(folder, `w${i}.yaml`), TEXT(i));
  try {
    const rounds = await bench.rounds({
      async relay() {
        const began = performance.now();
        for (const file of fs.readdirSync(folder)) await fs.promises.readFile(path.join(folder, file), 'utf8');
        return performance.now() - began;
      },
      async metis() {
        const library = createWorkerLibrary(silentLogger);
        const first = await timed(() => library.list(root));
        fs.writeFileSync(path.join(folder, 'w7.yaml'), `${TEXT(7)}locked: true\n`);
        const changed = await timed(() => library.list(root));
        fs.writeFileSync(path.join(folder, 'w7.yaml'), TEXT(7));
        return { first, changed };
      },
    });
    const of = (figure) => ({ metis: rounds.metis.map((r) => r[figure]), relay: rounds.relay });
    return [
      { row: `${WORKERS} definitions, first time`, unit: 'ms', better: 'lower', ...of('first') },
      { row: `${WORKERS} definitions, one changed`, unit: 'ms', better: 'lower', ...of('changed') },
    ];
  } finally {
    fs.rmSync(root, { recursive: true, force: true });
  }
}

async function timed(list) {
  const began = performance.now();
  const found = await list();
  if (found.length !== WORKERS || found.some((worker) => worker.errors.length > 0))
    throw new Error('not all were read');
  return performance.now() - began;
}
