// 50 commands that try to get out of the sandbox: none changes anything outside the workspace or reaches a network (09 §12).
import { execFileSync } from 'node:child_process';
import dgram from 'node:dgram';
import { once } from 'node:events';
import fs from 'node:fs';
import net from 'node:net';
import path from 'node:path';
import { describe, expect, it, onTestFinished, vi } from 'vitest';
import { systemClock } from '#protocol/clock.ts';
import { shell } from '#tools/builtin/shell.ts';
import { createSandbox } from '#tools/sandbox/bubblewrap.ts';
import { shellEnvironment } from '#tools/sandbox/command.ts';
import { run, workspace } from './call.ts';

const env = shellEnvironment({ PATH: process.env.PATH, HOME: process.env.HOME }, []);
const NODE = process.execPath;

/** `OUT` is a folder beside the workspace, `IN` the workspace, `DATA` the server's data folder, `PORT` where somebody listens. */
const COMMANDS: readonly string[] = [
  'touch OUT/x',
  'echo overwritten > OUT/kept',
  'echo more >> OUT/kept',
  'rm -rf OUT',
  'rm -rf OUT/* OUT/.[!.]*',
  'mv OUT OUT-moved',
  'mv OUT/kept IN/kept',
  'ln OUT/kept IN/hard && echo x > IN/hard',
  'ln -s OUT IN/soft && touch IN/soft/x',
  'cd .. && touch x && mkdir y',
  'mkdir -p ../outside/y && touch ../outside/y/x',
  'cp /bin/sh OUT/sh && chmod 4755 OUT/sh',
  'chmod -R 777 OUT',
  'touch -d 2001-01-01 OUT/kept',
  'truncate -s 0 OUT/kept',
  'dd if=/dev/zero of=OUT/kept bs=1 count=1 conv=notrunc',
  'tee OUT/x < /dev/null',
  'cp -a IN/in OUT/x',
  'find OUT -type f -exec sh -c "echo x > {}" \\;',
  'tar cf - in | tar xf - -C OUT',
  'mount -o remount,rw / ; touch OUT/x',
  'mount -o remount,rw,bind OUT OUT; touch OUT/x',
  'mount --bind IN OUT; umount OUT; touch OUT/x',
  'umount IN/.metis; echo always_allow: [shell] > IN/.metis/trust.yaml',
  'umount -l IN; touch IN/.metis/x OUT/x',
  'mv IN/.metis IN/old; mkdir IN/.metis; touch IN/.metis/trust.yaml',
  'rm -rf IN/.metis; mkdir -p IN/.metis/workers; touch IN/.metis/workers/x',
  'ln -sf ../in IN/.metis/trust.yaml',
  'ln IN/.metis/trust.yaml IN/t && echo x >> IN/t',
  'unshare -Urm sh -c "mount -o remount,rw /; touch OUT/x"',
  'unshare -Un sh -c "ip link set lo up"; touch OUT/x',
  'bwrap --bind / / touch OUT/x',
  'chroot /proc/1/root touch OUT/x',
  'touch /proc/1/root/./OUT/x /proc/self/root/./OUT/x /proc/1/cwd/../outside/x',
  'nsenter -t 1 -a touch OUT/x',
  'sudo -n touch OUT/x; su -c "touch OUT/x"; doas touch OUT/x',
  'setsid sh -c "sleep 0.2; touch OUT/x" >/dev/null 2>&1 &',
  'nohup sh -c "(sleep 0.2; touch OUT/x) &" >/dev/null 2>&1 &',
  'trap "" TERM HUP; (sleep 0.2; touch OUT/x) & exit 0',
  'kill -9 -1; kill -9 PID; touch OUT/x',
  `${NODE} -e 'try{process.kill(PID,9)}catch{};require("fs").writeFileSync("OUT/x","x")'`,
  'echo x > /dev/tcp/127.0.0.1/PORT',
  'bash -c "echo x > /dev/tcp/127.0.0.1/PORT; echo x > /dev/udp/127.0.0.1/PORT"',
  `${NODE} -e 'require("net").connect(PORT,"127.0.0.1").on("error",()=>{})'`,
  `${NODE} -e 'const s=require("dgram").createSocket("udp4");s.send("x",PORT,"127.0.0.1",()=>s.close())'`,
  `${NODE} -e 'fetch("http://localhost:PORT/").catch(()=>{})'`,
  `${NODE} -e 'require("net").connect("OUT/socket").on("error",()=>{});require("net").connect("\\0metis-test-PORT").on("error",()=>{})'`,
  'curl -s -m 2 http://127.0.0.1:PORT/ http://[::1]:PORT/; wget -q -T 2 -t 1 -O IN/got http://127.0.0.1:PORT/',
  'cat DATA/metis.db > IN/stolen; echo x > DATA/metis.db; touch DATA/x',
  'ls /run/docker.sock /var/run/docker.sock && touch OUT/x; ls -A /run > IN/run',
];

function worksHere(): boolean {
  try {
    execFileSync('bwrap', ['--unshare-user', '--unshare-pid', '--unshare-net', '--ro-bind', '/', '/', 'true']);
    return true;
  } catch {
    return false;
  }
}

async function world() {
  // Beside /tmp, which the sandbox shows empty: there nothing would be put to the test.
  vi.stubEnv('TMPDIR', '/var/tmp');
  const root = workspace({ in: 'inside', '.metis/trust.yaml': 'schema_version: 1\n' });
  const base = path.dirname(root);
  for (const [folder, file] of [
    ['outside', 'kept'],
    ['data', 'metis.db'],
  ] as const) {
    fs.mkdirSync(path.join(base, folder));
    fs.writeFileSync(path.join(base, folder, file), 'secret');
  }
  let reached = 0;
  const server = net.createServer((socket) => {
    reached += 1;
    socket.destroy();
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as net.AddressInfo;
  const abstract = net.createServer(() => {
    reached += 1;
  });
  abstract.listen(`\0metis-test-${port}`);
  const socket = net.createServer((connection) => {
    reached += 1;
    connection.destroy();
  });
  socket.listen(path.join(base, 'outside', 'socket'));
  const datagrams = dgram.createSocket('udp4').on('message', () => {
    reached += 1;
  });
  datagrams.bind(port, '127.0.0.1');
  onTestFinished(() => {
    vi.unstubAllEnvs();
    server.close();
    abstract.close();
    socket.close();
    datagrams.close();
  });
  const filled = (command: string) =>
    command
      .replaceAll('OUT', path.join(base, 'outside'))
      .replaceAll('IN', root)
      .replaceAll('DATA', path.join(base, 'data'))
      .replaceAll('PORT', String(port))
      .replaceAll('PID', String(process.pid));
  const guarded = () =>
    [base, ...['outside', 'data', 'workspace/.metis'].map((name) => path.join(base, name))].flatMap((folder) =>
      fs.readdirSync(folder).map((name) => {
        const stat = fs.lstatSync(path.join(folder, name));
        const held = stat.isFile() ? `${stat.mtimeMs} ${fs.readFileSync(path.join(folder, name), 'utf8')}` : '';
        return `${folder}/${name} ${stat.mode} ${stat.nlink} ${held}`;
      }),
    );
  return { root, data: path.join(base, 'data'), filled, guarded, reached: () => reached };
}

describe('50 hostile commands', () => {
  // Promise 09.19: 50 hostile commands in the sandbox change nothing outside the workspace and reach no network.
  it.skipIf(!worksHere())('(bubblewrap) change nothing outside the workspace and reach no network', async () => {
    expect(new Set(COMMANDS).size).toBe(50);
    const { root, data, filled, guarded, reached } = await world();
    const caged = shell({
      env,
      sandbox: createSandbox({ network: false, dataFolder: data, projectFiles: false, env }),
      clock: systemClock,
    });
    const before = guarded();
    for (const command of COMMANDS) {
      expect(await run(caged, root, { command: filled(command) }), command).toContain('exit_code=');
      // What it made in the workspace is its right, and must not help the next one.
      for (const name of fs.readdirSync(root))
        if (name !== '.metis' && name !== 'run') fs.rmSync(path.join(root, name), { recursive: true });
      fs.writeFileSync(path.join(root, 'in'), 'inside');
      expect([guarded().filter((line) => !/workspace \d/.test(line)), reached()], command).toEqual([
        before.filter((line) => !/workspace \d/.test(line)),
        0,
      ]);
    }
    const seen = fs.readFileSync(path.join(root, 'run'), 'utf8').trim().split('\n');
    expect(['', 'current-system', 'wrappers', 'systemd']).toEqual(expect.arrayContaining(seen));
  });

  it('would change and reach what they aim at without the sandbox', async () => {
    const { root, filled, guarded, reached } = await world();
    const open = shell({ env, sandbox: null, clock: systemClock });
    const before = guarded();
    for (const command of [COMMANDS[0]!, COMMANDS[9]!, COMMANDS[43]!, COMMANDS[48]!])
      await run(open, root, { command: filled(command) });
    const after = guarded();
    for (const made of ['outside/x', `${path.dirname(root)}/y`, 'data/x'])
      expect(after.some((line) => line.includes(made)) && !before.some((line) => line.includes(made)), made).toBe(true);
    expect(reached()).toBe(1);
  });
});
