// A disk that is full or read-only under the real process: clear errors, nothing acknowledged is lost, and work goes on afterwards.
import { spawnSync } from 'node:child_process';
import fs from 'node:fs';
import path from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { until } from '../support/until.ts';
import { JUST_TALK, script } from './script.ts';
import { startWorld, type World } from './world.ts';

let world: World;
let said: ReturnType<typeof script>;
beforeEach(async () => {
  said = script({ 'planner 0': { tool_calls: [{ name: 'list_files', input: {} }] } });
  world = await startWorld(said.answer);
});
afterEach(async () => {
  // Held by no process any more, so that the folder can be removed.
  for (const server of servers.splice(0)) await server.stop('SIGKILL');
  spawnSync('umount', [world.data]);
  await world.close();
});
const servers: Awaited<ReturnType<World['serve']>>[] = [];

/** Mounts a small file system of its own as the data folder. */
const mounted = (...options: string[]) =>
  spawnSync('mount', ['-t', 'tmpfs', '-o', ['size=4m', ...options].join(), 'tmpfs', world.data]).status === 0;
const mayMount = process.platform === 'linux' && process.getuid?.() === 0;

describe.runIf(mayMount)('a full disk', () => {
  it('answers with one clear error, keeps what was acknowledged, and goes on when there is room again', async (test) => {
    if (!mounted()) return test.skip();
    const first = await world.serve();
    servers.push(first);
    const id = await world.session();
    const done = await world.submit(id, JUST_TALK);
    await world.ended(id, done);
    const gate = said.hold('planner 0');
    const cut = await world.submit(id, 'go');
    await gate.arrived;

    const filler = path.join(world.data, 'filler');
    expect(() => {
      for (;;) fs.appendFileSync(filler, Buffer.alloc(4096));
    }).toThrow(/ENOSPC/);
    const status = async (where: string) => (await fetch(world.url + where)).status;
    expect(await status('/readyz')).toBe(503);
    await expect(world.session()).rejects.toMatchObject({ status: 503, code: 'storage_unavailable' });
    gate.release();
    expect(await (await fetch(`${world.url}/readyz`)).text()).toContain('the disk is full');
    await until(() => first.output.stderr.includes('a turn ended without its terminal event'));
    expect(await status('/healthz')).toBe(200);
    expect((await world.ask('GET', `/sessions/${id}/turns/${done}`)).status).toBe('completed');
    expect((await world.ask('GET', `/sessions/${id}/turns/${cut}`)).status).toBe('in_flight');
    // No loop: each refused write is reported once.
    expect(first.output.stderr.split('\n').length).toBeLessThan(30);

    fs.rmSync(filler);
    expect(await status('/readyz')).toBe(200);
    const other = await world.session();
    expect((await world.ended(other, await world.submit(other, JUST_TALK))).status).toBe('completed');
    expect((await first.stop('SIGTERM')).code).toBe(0);
    servers.push(await world.serve());
    expect((await world.ended(id, cut)).status).toBe('completed');
    expect(world.rows('SELECT status FROM turns')).toEqual(Array(3).fill({ status: 'completed' }));
    expect(world.rows('PRAGMA integrity_check')).toEqual([{ integrity_check: 'ok' }]);
  });
});

describe.runIf(mayMount)('a read-only file system', () => {
  it('keeps the server from starting with one line that names the file and the fix', async (test) => {
    if (!mounted()) return test.skip();
    const server = world.launch();
    await server.line(/listens on/);
    await server.stop('SIGTERM');
    expect(spawnSync('mount', ['-o', 'remount,ro', world.data]).status).toBe(0);
    const refused = await world.launch().finished;
    expect(refused.code).toBe(1);
    const lines = refused.stderr.split('\n').filter((line) => line !== '' && !line.startsWith('{'));
    expect(lines).toHaveLength(1);
    expect(lines[0]).toMatch(/database_unwritable: .*metis\.db .*check the folder/);
  });
});
