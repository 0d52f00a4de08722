// shell: real processes, real signals (09 §9.3, §10, §12, §13).

import { execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import fs from 'node:fs';
import net from 'node:net';
import path from 'node:path';
import { describe, expect, it } from 'vitest';
import { silentLogger } from '#core/ports/logger.ts';
import { Cancelled } from '#protocol/abort.ts';
import { type Clock, systemClock } from '#protocol/clock.ts';
import type { SessionId } from '#protocol/ids.ts';
import { shell } from '#tools/builtin/shell.ts';
import { createSandbox } from '#tools/sandbox/bubblewrap.ts';
import { createOutputWindow, shellEnvironment } from '#tools/sandbox/command.ts';
import { createTemporaryFolders } from '#tools/workspace/temporary-folders.ts';
import { until } from '../support/until.ts';
import { call, failure, run, textOf, workspace } from './call.ts';

const env = shellEnvironment({ PATH: process.env.PATH, HOME: '/root', ANTHROPIC_API_KEY: 'sk-secret' }, []);
const tool = shell({ env, sandbox: null, clock: systemClock });

/** Real processes on a clock a hundred times as fast: 5 s of grace pass in 50 ms. */
const hurried: Clock = { ...systemClock, after: (ms, fn) => systemClock.after(ms / 100, fn) };
const hasty = shell({ env, sandbox: null, clock: hurried });

/** The first line of a file that another process writes. */
async function written(file: string): Promise<string> {
  const text = () => (fs.existsSync(file) ? fs.readFileSync(file, 'utf8') : '');
  // Watching before the first look: what is written in between must not be missed.
  const watcher = fs.watch(path.dirname(file));
  try {
    while (!text().endsWith('\n')) await once(watcher, 'change');
    return text().trim();
  } finally {
    watcher.close();
  }
}

/** Resolves when no process of the group runs; one that is dead but not yet collected by its parent does not. */
async function gone(group: string): Promise<void> {
  const runs = (pid: string) => {
    try {
      const [state, , pgrp] = fs
        .readFileSync(`/proc/${pid}/stat`, 'utf8')
        .replace(/^.*\) /s, '')
        .split(' ');
      return pgrp === group.trim() && state !== 'Z' && state !== 'X';
    } catch {
      return false;
    }
  };
  await until(() => !fs.readdirSync('/proc').some((name) => /^\d+$/.test(name) && runs(name)));
}

describe('shell', () => {
  it('runs a command in the workspace and reports both outputs in their order', async () => {
    const root = workspace({ a: '' });
    const output = await call(tool, root, { command: 'pwd; ls; echo err >&2; echo out' }).output;
    expect(textOf(output)).toBe(`$ pwd; ls; echo err >&2; echo out\nexit_code=0\n\n${root}\na\nerr\nout\n`);
    expect(output).toMatchObject({ success: true, command_executed: 'pwd; ls; echo err >&2; echo out' });
  });

  it('reports a failure as a handled one', async () => {
    const output = await call(tool, workspace(), { command: 'exit 3' }).output;
    expect(textOf(output)).toBe('$ exit 3\nexit_code=3\n\n');
    expect(output.success).toBe(false);
  });

  it('names the signal that killed it', async () => {
    expect(await run(tool, workspace(), { command: 'kill -9 $$' })).toContain('exit_code=signal:SIGKILL\n');
  });

  it('has no input to wait for', async () => {
    expect(await run(tool, workspace(), { command: 'cat; echo done' })).toBe('$ cat; echo done\nexit_code=0\n\ndone\n');
  });

  it('shows invalid bytes as replacement characters', async () => {
    expect(await run(tool, workspace(), { command: "printf 'a\\377b'" })).toContain('\n\na\ufffdb');
  });

  // Promise 09.16: A large output keeps its first and last 128 KiB around the number of omitted bytes.
  it('keeps the first and the last 128 KiB of a large output, whole characters only', async () => {
    const half = 128 * 1024;
    const whole = Array.from({ length: 100_000 }, (_, i) => `line ${i}\n`).join('');
    const command = 'i=0; while [ $i -lt 100000 ]; do echo "line $i"; i=$((i+1)); done';
    const text = await run(tool, workspace(), { command });
    expect(text).toBe(
      `$ ${command}\nexit_code=0\n\n${whole.slice(0, half)}\n... [output truncated: ${whole.length - 2 * half} bytes omitted]\n${whole.slice(-half)}`,
    );
    const euros = await run(tool, workspace(), { command: 'yes "€€" | head -n 100000' });
    expect(euros).not.toContain('\ufffd');
    expect(Buffer.byteLength(euros)).toBeLessThan(2 * half + 200);
  });

  it('takes a flood that is no text as fast as one that is, and keeps no more of it', () => {
    const window = createOutputWindow(131_072);
    const binary = Buffer.from(Uint8Array.from({ length: 65_536 }, (_, i) => (i * 2_654_435_761) >>> 24));
    const before = process.cpuUsage();
    for (let i = 0; i < 400; i += 1) window.push(binary);
    const text = window.text();
    // Of the processor; read as text while it comes it took thirty times as much.
    expect(process.cpuUsage(before).user / 1000).toBeLessThan(60);
    expect(text).toMatch(/\n\.\.\. \[output truncated: \d+ bytes omitted\]\n/);
    expect(Buffer.byteLength(text)).toBeLessThan(262_144 + 100);
  });

  // Promise 09.16: A command sees no key of the server.
  it('hands on no key of the server, and its own terminal', async () => {
    const text = await run(tool, workspace(), { command: 'env' });
    expect(text).not.toContain('sk-secret');
    expect(text).toContain('TERM=dumb');
  });

  it('does not wait for a background child that keeps the output open, and ends it', async () => {
    const root = workspace();
    const text = await run(hasty, root, { command: 'sleep 300 & echo $$ > group; echo started' });
    expect(text).toContain('started');
    await gone(fs.readFileSync(path.join(root, 'group'), 'utf8'));
  });

  it('ends a background child that closed its output', async () => {
    const root = workspace();
    await run(tool, root, { command: 'sleep 300 >/dev/null 2>&1 & echo $$ > group' });
    await gone(fs.readFileSync(path.join(root, 'group'), 'utf8'));
  });

  // Promise 09.12: A command that is aborted ends with its whole process group and hands back what it printed.
  it('ends the whole group on abort and hands back what it printed', async () => {
    const root = workspace();
    const stop = new AbortController();
    const command = 'echo a; echo $$ > group; sleep 300; echo b';
    const { tool: started, output } = call(tool, root, { command }, { signal: stop.signal });
    const ended = failure(output);
    const group = await written(path.join(root, 'group'));
    stop.abort(new Cancelled('timeout'));
    const error = await ended;
    expect([error.error_class, error.partial]).toEqual(['cancelled', 'a\n']);
    await gone(group);
    expect(await started.cancel()).toBe(false);
  });

  // Promise 09.13: A command that ignores SIGTERM is killed after the grace period.
  it('kills a command that ignores SIGTERM after the grace period', async () => {
    const root = workspace();
    const stop = new AbortController();
    const command = "trap '' TERM; echo $$ > group; while :; do sleep 1; done";
    const ended = failure(call(hasty, root, { command }, { signal: stop.signal }).output);
    const group = await written(path.join(root, 'group'));
    stop.abort(new Cancelled('user_cancel'));
    await ended;
    await gone(group);
  });

  it('lets a command clean up on SIGTERM', async () => {
    const root = workspace();
    const command = "trap 'echo bye > bye; exit 0' TERM; echo $$ > group; while :; do sleep 0.05; done";
    const { tool: started, output } = call(tool, root, { command });
    await written(path.join(root, 'group'));
    expect(await started.cancel()).toBe(true);
    await output;
    expect(fs.readFileSync(path.join(root, 'bye'), 'utf8')).toBe('bye\n');
  });

  it('starts nothing once it is aborted', async () => {
    const root = workspace();
    const signal = AbortSignal.abort(new Cancelled('user_cancel'));
    await expect(call(tool, root, { command: 'touch x' }, { signal }).output).rejects.toBeInstanceOf(Cancelled);
    expect(fs.readdirSync(root)).toEqual([]);
  });

  it('explains a command that the system cannot take', async () => {
    for (const command of ['a\0b', 'x'.repeat(3_000_000)]) {
      const error = await failure(call(tool, workspace(), { command }).output);
      expect(error.error_class).toBe('execution_error');
      expect(error.message).toMatch(/^the command c/);
    }
  });
});

describe('the environment of a command', () => {
  it('has the short list, the configured names and nothing else', () => {
    const server = {
      PATH: '/bin',
      LC_ALL: 'C',
      LC_TIME: 'x',
      OPENAI_API_KEY: 'k',
      EDITOR: 'vi',
      TERM: 'xterm',
      TZ: undefined,
    };
    expect(shellEnvironment(server, [])).toEqual({ PATH: '/bin', LC_ALL: 'C', LC_TIME: 'x', TERM: 'dumb' });
    expect(shellEnvironment(server, ['EDITOR'])).toMatchObject({ EDITOR: 'vi', TERM: 'dumb' });
  });
});

function bubblewrapWorks(): boolean {
  try {
    execFileSync('bwrap', ['--unshare-user', '--unshare-pid', '--unshare-net', '--ro-bind', '/', '/', 'true']);
    return true;
  } catch {
    return false;
  }
}

describe('the shell sandbox', () => {
  const caged = (dataFolder: string | null = null, network = false) =>
    shell({ env, sandbox: createSandbox({ network, dataFolder, projectFiles: false, env }), clock: systemClock });

  // Promise 09.19: Without bubblewrap a sandboxed command answers one error and does not run.
  it('without bubblewrap answers one error and runs nothing', async () => {
    const root = workspace();
    const nowhere = { PATH: path.join(root, 'nowhere') };
    const lost = shell({
      env,
      sandbox: createSandbox({ network: false, dataFolder: null, projectFiles: false, env: nowhere }),
      clock: systemClock,
    });
    const error = await failure(call(lost, root, { command: 'touch x' }).output);
    expect([error.error_class, error.message]).toEqual([
      'execution_error',
      'the shell sandbox is required but bubblewrap is not available',
    ]);
    expect(fs.existsSync(path.join(root, 'x'))).toBe(false);
  });

  // Promise 09.19: In the sandbox a command writes the workspace without .metis and nothing else.
  it.skipIf(!bubblewrapWorks())('(bubblewrap) lets a command write the workspace and nothing else', async () => {
    const root = workspace();
    const outside = path.dirname(root);
    expect(await run(caged(), root, { command: 'echo in > file; cat file' })).toContain('exit_code=0\n\nin\n');
    expect(fs.readFileSync(path.join(root, 'file'), 'utf8')).toBe('in\n');
    for (const command of [
      'touch .metis/x',
      'rmdir .metis',
      `touch ${outside}/x && ls ${root}/../x`,
      'touch /usr/x',
      'mount -o remount,rw /',
    ]) {
      await run(caged(), root, { command });
    }
    expect(await run(caged(), root, { command: 'touch .metis/x' })).not.toContain('exit_code=0');
    expect(fs.readdirSync(path.join(root, '.metis'))).toEqual([]);
    expect(fs.readdirSync(outside)).toEqual(['workspace']);
    expect(fs.existsSync('/usr/x')).toBe(false);
  });

  it.skipIf(!bubblewrapWorks())(
    '(bubblewrap) keeps the temporary folder of a worker between its commands, in a data folder that stays hidden',
    async () => {
      const root = workspace();
      const data = path.join(path.dirname(root), 'data');
      fs.mkdirSync(data);
      fs.writeFileSync(path.join(data, 'secret'), 'secret');
      const sandbox = createSandbox({ network: false, dataFolder: data, projectFiles: false, env });
      const temporary = createTemporaryFolders(path.join(data, 'tmp'), silentLogger);
      const tool = shell({ env, sandbox, temporary, clock: systemClock });
      const asWorker = async (command: string) =>
        textOf(await call(tool, root, { command }, { is_worker: true }).output);
      expect(await asWorker('echo kept > $TMPDIR/x')).toContain('exit_code=0');
      expect(await asWorker(`cat $TMP/x; ls ${data}; touch ${data}/y`)).toMatch(/exit_code=1\n\nkept\ntmp\n/);
      expect(fs.readdirSync(data).sort()).toEqual(['secret', 'tmp']);
      await temporary.remove('sess_01' as SessionId);
      expect(fs.readdirSync(path.join(data, 'tmp'))).toEqual([]);
    },
  );

  // Promise 09.24: In the sandbox of a server that runs as root no setting of the kernel can be written.
  it.skipIf(!bubblewrapWorks())('(bubblewrap) lets no command write a setting of the kernel', async () => {
    const root = workspace();
    const ofProcesses = "-path '/proc/[0-9]*' -o -path /proc/self -o -path /proc/thread-self";
    const list = `find /proc /sys '(' ${ofProcesses} ')' -prune -o -type f -writable -print 2>/dev/null | head -5`;
    const write = 'v=$(cat /proc/sys/vm/swappiness); (echo $v > /proc/sys/vm/swappiness) 2>/dev/null || echo refused';
    expect(await run(caged(), root, { command: `${list}; ${write}` })).toMatch(/exit_code=0\n\nrefused\n$/);
  });

  it.skipIf(!bubblewrapWorks())('(bubblewrap) lets no command name the programs that the server starts', async () => {
    for (const files of [{}, { '.mcp.json': '{}' }]) {
      const root = workspace(files);
      const sandbox = createSandbox({ network: false, dataFolder: null, projectFiles: true, env });
      const command =
        'echo evil > .mcp.json; rm -f .mcp.json; mv .mcp.json x; ln -f /etc/passwd .mcp.json; cat .mcp.json';
      const text = await run(shell({ env, sandbox, clock: systemClock }), root, { command });
      expect(text).toContain('exit_code=0');
      expect(JSON.parse(fs.readFileSync(path.join(root, '.mcp.json'), 'utf8'))).toEqual(
        '.mcp.json' in files ? {} : { mcpServers: {} },
      );
    }
  });

  // Promise 13.8: under the shell sandbox no command changes who the workers are.
  it.skipIf(!bubblewrapWorks())(
    '(bubblewrap) lets no command change who the workers of the workspace are',
    async () => {
      const files = {
        'workers/w.yaml': 'locked: true',
        'prompts/w.md': 'prompt',
        'schemas/s.json': '{}',
        '.claude/agents/a.md': 'agent',
        '.claude/other.txt': 'old',
        'src/free.txt': 'old',
      };
      const root = workspace(files);
      const attempts = [
        'for f in workers/w.yaml prompts/w.md schemas/s.json .claude/agents/a.md; do echo evil > $f; rm -f $f; done',
        'mv workers x; mv .claude y; mv prompts p; rm -rf schemas .claude/agents',
        'touch workers/w.json prompts/w.jinja2 .claude/agents/b.md',
        'echo new > .claude/other.txt; echo new > src/free.txt',
      ];
      for (const command of attempts) await run(caged(), root, { command });
      const changed = { '.claude/other.txt': 'new\n', 'src/free.txt': 'new\n' };
      for (const [name, text] of Object.entries({ ...files, ...changed }))
        expect(fs.readFileSync(path.join(root, name), 'utf8'), name).toBe(text);
      expect(fs.readdirSync(root).sort()).toEqual(['.claude', '.metis', 'prompts', 'schemas', 'src', 'workers']);
      expect(fs.readdirSync(path.join(root, 'workers'))).toEqual(['w.yaml']);
    },
  );

  it.skipIf(!bubblewrapWorks())(
    '(bubblewrap) runs nothing where a link keeps it from protecting the workers',
    async () => {
      for (const [link, target] of [
        ['workers', 'defs'],
        ['.metis/workers', '../defs'],
        ['.claude', 'dot'],
        ['workers/e.yaml', '../defs/e.yaml'],
        ['.metis/prompts', '../defs'],
      ] as const) {
        const root = workspace({ 'defs/e.yaml': 'locked: true', 'dot/agents/a.md': 'agent' });
        fs.mkdirSync(path.dirname(path.join(root, link)), { recursive: true });
        fs.symlinkSync(target, path.join(root, link));
        const outcome = await run(caged(), root, {
          command: 'echo evil > defs/e.yaml; echo evil > dot/agents/a.md',
        }).catch(String);
        expect(outcome, link).toContain(`cannot protect ${link}`);
        expect(fs.readFileSync(path.join(root, 'defs/e.yaml'), 'utf8')).toBe('locked: true');
        expect(fs.readFileSync(path.join(root, 'dot/agents/a.md'), 'utf8')).toBe('agent');
      }
    },
  );

  // Promise 13.8: under the shell sandbox no command is the first to make a worker.
  it.skipIf(!bubblewrapWorks())(
    '(bubblewrap) lets no command be the first to make a worker, its prompt or its schema',
    async () => {
      const nothing = workspace({ 'src/free.txt': 'old' });
      const ownFolder = workspace({ 'workers/pool.ts': 'code', '.claude/settings.json': '{}' });
      const bare = workspace({ '.metis/workers/w.yaml': 'locked: true\noutput_schema_ref: answer' });
      const attempts = [
        'mkdir -p .metis/workers workers .claude/agents; chmod -R u+w .',
        'for f in .metis/workers/e.yaml workers/e.yaml workers/e.json .claude/agents/e.md; do echo evil > $f; done',
        'mv workers w; mv .claude c; rm -rf workers .claude; ln -s src workers; mkdir -p workers .claude/agents',
        'for f in prompts/w.md schemas/answer.json; do mkdir -p $(dirname $f); echo evil > $f; done; echo new > src/free.txt',
      ];
      for (const root of [nothing, ownFolder, bare]) {
        for (const command of attempts) await run(caged(), root, { command });
        for (const folder of ['.metis/workers', 'workers', '.claude/agents'])
          expect(
            (fs.existsSync(path.join(root, folder)) ? fs.readdirSync(path.join(root, folder)) : []).filter((name) =>
              name.startsWith('e.'),
            ),
            folder,
          ).toEqual([]);
        expect(fs.lstatSync(path.join(root, 'workers')).isDirectory()).toBe(true);
      }
      expect(fs.readdirSync(path.join(bare, 'prompts'))).toEqual([]);
      expect(fs.readdirSync(path.join(bare, 'schemas'))).toEqual([]);
      // Without workers they are folders like any other.
      expect(fs.readFileSync(path.join(nothing, 'prompts/w.md'), 'utf8')).toBe('evil\n');
      expect(fs.readFileSync(path.join(nothing, 'src/free.txt'), 'utf8')).toBe('new\n');
    },
  );

  // Promise 13.8: no second name of a file opens what the shell sandbox protects.
  it.skipIf(!bubblewrapWorks())(
    '(bubblewrap) runs nothing where a second name of a file would open what it protects',
    async () => {
      for (const file of [
        'workers/w.yaml',
        '.metis/workers/w.yaml',
        '.metis/trust.yaml',
        '.metis/routing.yaml',
        '.mcp.json',
        '.metis/schemas/deep/s.json',
        'prompts/w.md',
        '.claude/agents/a.md',
      ]) {
        const root = workspace({ 'workers/other.yaml': 'locked: true', [file]: 'locked: true' });
        fs.linkSync(path.join(root, file), path.join(root, 'beside.txt'));
        const sandbox = createSandbox({ network: false, dataFolder: null, projectFiles: true, env });
        const outcome = await run(shell({ env, sandbox, clock: systemClock }), root, {
          command: 'echo evil > beside.txt',
        }).catch(String);
        expect(outcome, file).toContain(`cannot protect ${file}: it has a second name`);
        expect(fs.readFileSync(path.join(root, file), 'utf8')).toBe('locked: true');
      }
      const root = workspace({ 'workers/w.yaml': 'locked: true' });
      await run(caged(), root, { command: 'ln workers/w.yaml twin && echo evil > twin' });
      expect(fs.readFileSync(path.join(root, 'workers/w.yaml'), 'utf8')).toBe('locked: true');
    },
  );

  // Promise 09.19: In the sandbox a command has no network unless it is configured.
  it.skipIf(!bubblewrapWorks())('(bubblewrap) reaches the network only when it is configured', async () => {
    const root = workspace();
    const server = net.createServer((socket) => socket.end('hello'));
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    const { port } = server.address() as net.AddressInfo;
    // A program of the system: the checkout, and the Node.js in it, may lie where the sandbox shows nothing.
    const command = `bash -c 'exec 3<>/dev/tcp/127.0.0.1/${port} && cat <&3'`;
    expect(await run(caged(), root, { command })).toContain('exit_code=1');
    expect(await run(caged(null, true), root, { command })).toContain('exit_code=0\n\nhello');
    await new Promise((resolve) => server.close(resolve));
  });

  it.skipIf(!bubblewrapWorks())('(bubblewrap) hides the data folder, wherever it lies', async () => {
    const root = workspace({ 'inside/metis.db': 'secret' });
    const beside = path.join(path.dirname(root), 'data');
    fs.mkdirSync(beside);
    fs.writeFileSync(path.join(beside, 'metis.db'), 'secret');
    for (const folder of [beside, path.join(root, 'inside'), path.dirname(root)]) {
      const command = `cat ${folder}/metis.db; touch ${folder}/new; ls -A ${folder}`;
      const text = await run(caged(folder), root, { command });
      expect(text).not.toContain('\nsecret');
      expect(text).not.toContain('\nnew');
      expect(fs.existsSync(path.join(folder, 'new'))).toBe(false);
    }
  });

  it.skipIf(!bubblewrapWorks())('(bubblewrap) keeps keys from a command that could read them without it', async () => {
    const root = workspace();
    const data = path.join(path.dirname(root), 'data');
    fs.mkdirSync(data);
    fs.writeFileSync(path.join(data, '.env'), 'OPENAI_API_KEY=key-in-file\n', { mode: 0o600 });
    const server = spawn(process.execPath, ['-e', 'process.stdin.resume()'], {
      env: { ANTHROPIC_API_KEY: 'key-in-environment' },
      stdio: ['pipe', 'ignore', 'ignore'],
    });
    try {
      const command = `cat /proc/[0-9]*/environ ${data}/.env 2>/dev/null | tr '\\0' '\\n' | grep -o 'key-in-[a-z]*' | sort -u`;
      const open = await run(tool, root, { command });
      expect(open).toContain('\nkey-in-environment\nkey-in-file\n');
      expect(await run(caged(data), root, { command })).not.toMatch(/^key-in-/m);
    } finally {
      server.stdin.end();
      await once(server, 'close');
    }
  });

  it.skipIf(!bubblewrapWorks())('(bubblewrap) ends with its call', async () => {
    const root = workspace();
    const { tool: started, output } = call(caged(), root, { command: 'echo up > up; sleep 300' });
    const ended = output.then(textOf);
    await written(path.join(root, 'up'));
    expect(await started.cancel()).toBe(true);
    expect(await ended).toContain('exit_code=signal:SIGTERM');
  });
});
