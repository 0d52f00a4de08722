// What `metis doctor` and a start say of the shell sandbox: whether bubblewrap works, not only whether it is there (09 §12).
import { execFileSync } from 'node:child_process';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { runHere } from './here.ts';
import { address, start, temporaryHome } from './metis.ts';

let home: ReturnType<typeof temporaryHome>;
beforeEach(() => {
  home = temporaryHome();
});
afterEach(() => home.remove());

function worksHere(): boolean {
  try {
    execFileSync('bwrap', ['--unshare-user', '--unshare-pid', '--unshare-net', '--ro-bind', '/', '/', 'true']);
    return true;
  } catch {
    return false;
  }
}
const doctor = (env: Record<string, string> = {}) =>
  runHere(['doctor', '--port', '0', '--set', 'tools.shell.sandbox=required'], { home: home.path, env });

describe('metis doctor with a required sandbox', () => {
  it.skipIf(!worksHere())('(bubblewrap) says that it works', async () => {
    expect((await doctor()).stdout).toMatch(/^ok +bubblewrap works/m);
  });

  // Promise 09.19: The doctor says in one error what to do where bubblewrap does not work.
  it('says in one error what to do where it does not', async () => {
    const said = await doctor({ PATH: home.path });
    expect(said.code).toBe(1);
    expect(said.stdout.match(/^error .*/gm)).toEqual([
      expect.stringMatching(
        /^error +tools\.shell\.sandbox is "required" but bwrap does not work here; install bubblewrap/,
      ),
    ]);
  });
});

it('metis serve with a required sandbox that does not work here says so in one warning, and serves', async () => {
  const server = start(['serve', '--port', '0', '--set', 'tools.shell.sandbox=required'], {
    home: home.path,
    env: { PATH: home.path },
  });
  await address(server);
  await server.line(/^Every command of the shell tool will be refused: .* install bubblewrap/m);
  const { stderr } = await server.stop();
  expect(stderr.match(/^.*bwrap.*$/gm)).toEqual([expect.stringContaining('"level":"warn"')]);
});

describe('a server that runs as root', () => {
  const isRoot = process.getuid?.() === 0;

  // Promise 09.24: A server that runs as root says so at its start and in doctor.
  it.skipIf(!isRoot)('logs one warning at its start, and doctor shows it', async () => {
    expect((await doctor()).stdout).toMatch(/^warning +the server runs as root/m);
    const server = start(['serve', '--port', '0'], { home: home.path });
    await address(server);
    const { stderr } = await server.stop();
    expect(stderr.match(/^.*runs as root.*$/gm)).toEqual([expect.stringContaining('"level":"warn"')]);
  });
});
