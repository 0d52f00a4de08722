// MCP servers as child processes: what they offer, how they are asked, and what their faults cost (09 §11).
import fs from 'node:fs';
import path from 'node:path';
import { describe, expect, it } from 'vitest';
import { until } from '../../support/until.ts';
import { failure, workspace } from '../call.ts';
import { fixture, gone, mcpWorld } from './world.ts';

/** How a configuration names a variable. */
const variable = (name: string) => `$\u007b${name}}`;

describe('a server that behaves', () => {
  it('offers its tools under its name; those that cannot be used are left out in one line', async () => {
    const world = mcpWorld({ fix: fixture() });
    const tools = await world.tools();
    const definitions = tools.map((tool) => tool.factory().definition);
    expect(definitions.map(({ name }) => name)).toEqual(
      expect.arrayContaining(['mcp__fix__echo', 'mcp__fix__Crash_Now', 'mcp__fix__hang']),
    );
    const names = definitions.map(({ name }) => name);
    expect(names).not.toContain('mcp__fix__remote');
    expect(names).not.toContain('mcp__fix__task');
    const echo = definitions.find(({ name }) => name === 'mcp__fix__echo');
    expect(echo).toMatchObject({
      description: 'Says it again.',
      side_effects: 'execute',
      requires_workspace: false,
      input_schema: { properties: { say: { oneOf: [{ type: 'string' }, { type: 'integer' }] } } },
    });
    expect(world.warnings()).toHaveLength(1);
    expect(world.warnings()[0]).toMatch(/^MCP server 'fix' .* \(and 3 more\)$/);
    const [line] = world.lines.filter(({ level }) => level === 'warn');
    expect(line?.fields.problems).toEqual(
      expect.arrayContaining([
        'lists a tool without a name',
        expect.stringContaining('"remote" that is left out: input_schema.properties.a.$ref: must be a local reference'),
        expect.stringContaining('"looks ahead" that is left out: input_schema.properties.a.pattern: Invalid regular'),
        expect.stringContaining('"task" that runs as a task only'),
      ]),
    );
  });

  it('gets input that fits its schema, which is enforced before it is asked', async () => {
    const world = mcpWorld({ fix: fixture() });
    expect(await world.call('mcp__fix__echo', { say: 'hello' })).toBe('hello');
    await expect(world.call('mcp__fix__echo', { say: true })).rejects.toThrow('say: must match exactly one schema');
  });

  it('answers in blocks, of which a model gets what it can read', async () => {
    const world = mcpWorld({ fix: fixture() });
    expect(await world.call('mcp__fix__blocks')).toBe(
      '[image/png][image omitted: data is not a PNG, JPEG, GIF or WebP image][audio/wav, 3 bytes, omitted]inside' +
        'b (file:///b)[hologram block omitted][a block without a type omitted]',
    );
    expect(await world.call('mcp__fix__structured')).toBe('{"a":1}');
  });

  it('is told the workspace when it asks for the roots', async () => {
    const world = mcpWorld({ fix: fixture() });
    expect(await world.call('mcp__fix__roots')).toBe(
      JSON.stringify([{ uri: `file://${world.root}`, name: path.basename(world.root) }]),
    );
  });

  it.each([false, true])(
    'may report progress, all of which is heard before the answer; in one piece with it: %j',
    async (at_once) => {
      const world = mcpWorld({ fix: fixture() });
      const progress: unknown[] = [];
      const logger = { ...world, debug: (fields: unknown) => void progress.push(fields) } as never;
      expect(await world.call('mcp__fix__progress', { at_once }, { logger })).toBe('done');
      expect(progress).toEqual([{ progress: '1/3 ' }, { progress: '2/3 ' }, { progress: '3/3 ' }]);
    },
  );

  it('changes its list, and the next turn has the new one', async () => {
    const world = mcpWorld({ fix: fixture() });
    const before = await world.tools();
    expect(await world.call('mcp__fix__learn', { name: 'trick' })).toBe('learned');
    expect(await world.names()).toContain('mcp__fix__trick');
    expect(await world.call('mcp__fix__trick')).toBe('I am trick');
    // What did not change is the same object, so a prompt stays the same text.
    const after = await world.tools();
    expect(before.every((tool) => after.some(({ factory }) => factory === tool.factory))).toBe(true);
  });

  it('settings of a tool: off, another class, its own limit', async () => {
    const tools = { echo: { enabled: false }, pid: { side_effects: 'read' as const, timeout_seconds: 5 } };
    const world = mcpWorld({ fix: fixture('good', { tools, call_timeout_seconds: 9, side_effects: 'write' }) });
    const definitions = (await world.tools()).map((tool) => tool.factory().definition);
    const byName = (name: string) => definitions.find((definition) => definition.name === `mcp__fix__${name}`);
    expect(byName('echo')).toBeUndefined();
    expect(byName('pid')).toMatchObject({ side_effects: 'read', timeout_seconds: 5 });
    expect(byName('env')).toMatchObject({ side_effects: 'write', timeout_seconds: 9 });
  });

  it('gets a small environment, and of ours only what its settings name', async () => {
    const env = { PATH: process.env.PATH, SECRET_KEY: 'sk-1', WANTED: 'yes' };
    const settings = { A: `${variable('WANTED')}!`, B: variable('ABSENT'), C: variable('ABSENT:-other') };
    const world = mcpWorld({ fix: fixture('good', { env: settings }) }, { env });
    const given = JSON.parse(await world.call('mcp__fix__env')) as Record<string, string>;
    expect(given).toMatchObject({ A: 'yes!', B: '', C: 'other' });
    expect(given.SECRET_KEY).toBeUndefined();
    expect(given.WANTED).toBeUndefined();
    expect(world.warnings()).toContain("MCP server 'fix' is started without ABSENT: not set, or withheld from it");
  });
});

describe('errors', () => {
  it('of a tool are answers, of the protocol are failures that the model reads on one line', async () => {
    const world = mcpWorld({ fix: fixture() });
    expect(await world.call('mcp__fix__fails')).toBe('no such thing');
    const refused = await failure(world.call('mcp__fix__refuse'));
    expect(refused).toMatchObject({ error_class: 'execution_error' });
    expect(refused.message).toBe("MCP server 'fix' answered with an error: that is not wanted");
    const wrong = await failure(world.call('mcp__fix__wrong'));
    expect(wrong.message).toMatch(/^MCP server 'fix' is unavailable: it did not answer as an MCP server: .*content/);
    expect(wrong.message).not.toContain('\n');
  });

  it('a call that is cancelled ends at once, and the server is told', async () => {
    const world = mcpWorld({ fix: fixture() });
    await world.tools();
    const scope = new AbortController();
    const hanging = world.call('mcp__fix__hang', {}, { signal: scope.signal });
    setImmediate(() => scope.abort(new Error('enough')));
    await expect(hanging).rejects.toThrow('enough');
    await until(async () => (await world.call('mcp__fix__cancelled')) === '1');
  });

  it('a call that takes longer than its limit is a timeout', async () => {
    const world = mcpWorld({ fix: fixture() });
    const late = await failure(world.call('mcp__fix__hang', {}, { timeout_seconds: 0.05 }));
    expect(late).toMatchObject({ error_class: 'timeout', message: "MCP server 'fix' did not answer in time." });
  });
});

describe('a server that dies', () => {
  it('in a call: the call fails, its tools stay listed, ten seconds later it is back', async () => {
    const world = mcpWorld({ fix: fixture() });
    const names = await world.names();
    const pid = Number(await world.call('mcp__fix__pid'));
    const died = await failure(world.call('mcp__fix__Crash_Now'));
    expect(died).toMatchObject({ error_class: 'execution_error' });
    expect(died.message).toBe("MCP server 'fix' is unavailable: it ended with exit status 3.");
    await gone(pid);
    expect(await world.names()).toEqual(names);
    const again = await failure(world.call('mcp__fix__pid'));
    expect(again.message).toBe("MCP server 'fix' is unavailable: it ended with exit status 3.");
    world.clock.skip(10_000);
    expect(Number(await world.call('mcp__fix__pid'))).not.toBe(pid);
    expect(world.warnings().filter((line) => line.includes('exit status'))).toEqual([
      "MCP server 'fix' ended with exit status 3; it is started again when it is needed",
    ]);
  });

  it('killed from outside: the next use says so, and it recovers', async () => {
    const world = mcpWorld({ fix: fixture() });
    const pid = Number(await world.call('mcp__fix__pid'));
    process.kill(pid, 'SIGKILL');
    await until(() => world.warnings().join().includes('was ended by SIGKILL'));
    expect((await failure(world.call('mcp__fix__pid'))).message).toContain(
      "'fix' is unavailable: it was ended by SIGKILL",
    );
    world.clock.skip(10_000);
    expect(Number(await world.call('mcp__fix__pid'))).toBeGreaterThan(0);
  });

  it('is ended 30 minutes after the last turn, not while one is open, and is back with the next', async () => {
    const world = mcpWorld({ fix: fixture() });
    const release = world.hold();
    const pid = await world.call('mcp__fix__pid');
    world.clock.skip(60 * 60_000);
    expect(await world.call('mcp__fix__pid')).toBe(pid);
    release();
    world.clock.skip(29 * 60_000);
    process.kill(Number(pid), 0);
    world.clock.skip(60_000);
    await gone(Number(pid));
    expect(world.warnings()).toHaveLength(1);
    expect(await world.call('mcp__fix__pid')).not.toBe(pid);
  });

  it('is gone with everything it started when we close', async () => {
    const root = workspace({ 'run.sh': 'sleep 60 & echo $! > child.pid; exec "$@"' });
    const world = mcpWorld(
      { fix: fixture('good', { command: '/bin/sh', args: ['run.sh', process.execPath, ...(fixture().args ?? [])] }) },
      { root },
    );
    const pid = Number(await world.call('mcp__fix__pid'));
    const child = Number(fs.readFileSync(path.join(root, 'child.pid'), 'utf8'));
    await world.close();
    await gone(pid);
    await gone(child);
  });
});

describe('a server that misbehaves costs one clear message', () => {
  // What says something is given the time to start on a busy machine; only silence is waited for to its end.
  it.each([
    ['garbage', 2, 'did not answer within 2 s; what it wrote is not MCP'],
    ['mute', 0.5, 'did not answer within 0.5 s'],
    ['deep', 20, 'sent a message that is nested deeper than 100 levels at line 1'],
    ['exits', 20, 'ended with exit status 1'],
  ])('%s', async (manner, startup_timeout_seconds, reason) => {
    const world = mcpWorld({ fix: fixture(manner, { startup_timeout_seconds }), good: fixture() });
    const names = await world.names();
    expect(names).toContain('mcp__good__echo');
    expect(names.filter((name) => name.startsWith('mcp__fix__'))).toEqual([]);
    const warnings = () => world.warnings().filter((line) => line.includes("'fix'"));
    await until(() => warnings().length > 0);
    expect(warnings()).toEqual([`MCP server 'fix' ${reason}; it has no tools until it answers`]);
  });

  it('a command that does not exist', async () => {
    const world = mcpWorld({ fix: fixture('good', { command: 'metis-no-such-program' }) });
    expect(await world.names()).toEqual([]);
    expect(world.warnings()).toEqual([
      "MCP server 'fix' cannot be started (ENOENT): check its command and cwd; it has no tools until it answers",
    ]);
  });

  it.each(['many', 'pages'])('5,000 tools, %s: the first 256 are used', async (manner) => {
    const world = mcpWorld({ fix: fixture(manner) });
    expect(await world.names()).toHaveLength(256);
    expect(world.warnings()).toEqual(["MCP server 'fix' lists more than 256 tools; the first 256 are used"]);
  });

  it('an answer of 10 MB ends its connection, one of 1 MB is cut', async () => {
    const world = mcpWorld({ fix: fixture() });
    expect(await world.call('mcp__fix__big', { bytes: 1_000_000 })).toHaveLength(1_000_000);
    const big = await failure(world.call('mcp__fix__big', { bytes: 10_000_000 }));
    expect(big.message).toBe("MCP server 'fix' is unavailable: it sent a message of more than 8388608 bytes.");
  });

  it('what it writes to stderr reaches the debug log, 64 KiB a minute', async () => {
    const world = mcpWorld({ fix: fixture('chatty') });
    await world.names();
    const size = () =>
      world.lines
        .filter(({ level, fields }) => level === 'debug' && typeof fields.text === 'string')
        .reduce((sum, { fields }) => sum + (fields.text as string).length, 0);
    await until(() => world.lines.some(({ message }) => message.includes('no more of it this minute')));
    expect(size()).toBeLessThanOrEqual(65_536);
    expect(size()).toBeGreaterThan(60_000);
  });

  it('a turn waits two seconds at most for one that hangs after its first start', async () => {
    const world = mcpWorld({ fix: fixture('exits, then mute') });
    await world.names();
    world.clock.skip(10_000);
    const began = performance.now();
    expect(await world.names()).toEqual([]);
    expect(performance.now() - began).toBeLessThan(3000);
  });
});
