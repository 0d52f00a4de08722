// What the log says of an error that nobody expected: the place in the source, though what runs is bundled.
import path from 'node:path';
import Database from 'better-sqlite3';
import { afterEach, beforeEach, expect, it } from 'vitest';
import { address, type Started, start, temporaryHome } from './metis.ts';

let home: ReturnType<typeof temporaryHome>;
let server: Started;
beforeEach(() => {
  home = temporaryHome();
});
afterEach(async () => {
  await server.stop('SIGKILL');
  home.remove();
});

it('an unexpected error is logged with the files and lines of the source', async () => {
  server = start(['serve', '--port', '0', '--data', home.path], { home: home.path });
  const url = await address(server);
  const database = new Database(path.join(home.path, 'metis.db'));
  database.pragma('foreign_keys = OFF');
  database.exec('ALTER TABLE sessions RENAME TO lost');
  database.close();
  expect((await fetch(`${url}/sessions`)).status).toBe(500);
  const { stderr } = await server.stop();
  const line = stderr.split('\n').find((text) => text.includes('request failed'))!;
  const { error } = JSON.parse(line) as { error: string };
  expect(error).toMatch(/\n {4}at .*\(src\/store\/[\w/-]+\.ts:\d+:\d+\)/);
  expect(error).not.toContain('/dist/');
});
