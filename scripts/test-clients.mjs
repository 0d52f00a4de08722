// Installs Claude Code and Codex from npm into a temporary folder and drives them through the gateway; neither is a dependency.
import { spawnSync } from 'node:child_process';
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';

const PROGRAMS = ['@anthropic-ai/claude-code', '@openai/codex'];

const folder = process.env.METIS_CLIENTS ?? fs.mkdtempSync(path.join(os.tmpdir(), 'metis-clients-'));
fs.mkdirSync(folder, { recursive: true });
for (const name of PROGRAMS) {
  if (fs.existsSync(path.join(folder, 'node_modules', name))) continue;
  // Saved in the folder's own package.json, or the install of the next one would remove this one again.
  // The tag itself: without it npm may choose an older release that names this Node.
  spawnSync('npm', ['install', '--no-audit', '--no-fund', '--prefix', folder, `${name}@latest`], {
    stdio: ['ignore', 'ignore', 'inherit'],
  });
}
for (const name of PROGRAMS) {
  const manifest = path.join(folder, 'node_modules', name, 'package.json');
  if (fs.existsSync(manifest))
    process.stdout.write(`${name} ${JSON.parse(fs.readFileSync(manifest, 'utf8')).version}\n`);
  else process.stderr.write(`${name} could not be installed: its tests are skipped\n`);
}
const { status } = spawnSync('npx', ['vitest', 'run', 'test/clients', '--reporter=verbose'], {
  stdio: 'inherit',
  env: { ...process.env, METIS_CLIENTS: folder },
});
if (process.env.METIS_CLIENTS === undefined) fs.rmSync(folder, { recursive: true, force: true });
process.exitCode = status ?? 1;
