// Whole servers on SQLite and on PostgreSQL, for promises that hold on both.
import fs from 'node:fs';
import path from 'node:path';
import { describe, onTestFinished } from 'vitest';
import type { Config } from '#protocol/config.ts';
import { type ConfigOver, mergeConfig, tempFolder } from './engine.ts';
import { type RealOptions, type RealServer, startReal } from './real-server.ts';
import { ownSchema, postgresService } from './services.ts';

type Database = 'sqlite' | 'postgres';

/** Starts a server on the database of the test; the same folder again is the same database. */
export interface BothWorld {
  /** A folder that holds workspaces. */
  readonly root: string;
  workspace(name: string): string;
  start(options: Pick<RealOptions, 'registry' | 'config'> & { readonly name?: string }): Promise<RealServer>;
}

const mergeOvers = (a: ConfigOver, b: ConfigOver): ConfigOver => mergeConfig(a as Config, b);

const { url, missing } = await postgresService();

async function openWorld(kind: Database): Promise<BothWorld> {
  const [home, root] = [tempFolder(), tempFolder()];
  const schema = kind === 'postgres' ? await ownSchema(url!) : null;
  if (schema !== null) onTestFinished(() => schema.drop());
  const shared: ConfigOver =
    schema === null
      ? {}
      : { database: { url: schema.url }, cluster: { name: schema.name, lease_seconds: 15, shared_roots: [root] } };
  return {
    root,
    workspace: (name) => {
      const folder = path.join(root, name);
      fs.mkdirSync(folder, { recursive: true });
      return folder;
    },
    start: ({ registry, config = {}, name = 'a' }) =>
      startReal({
        folder: path.join(home, name),
        registry,
        config: mergeOvers(mergeOvers(shared, schema === null ? {} : { cluster: { node_name: name } }), config),
      }),
  };
}

/** The same tests on both databases; those on PostgreSQL need a server of it. */
export function describeOnBoth(
  title: string,
  tests: (open: () => Promise<BothWorld>, database: Database) => void,
): void {
  describe(`${title}, on SQLite`, () => tests(() => openWorld('sqlite'), 'sqlite'));
  describe.skipIf(url === null)(`${title}, on PostgreSQL${missing && `, skipped: ${missing}`}`, () =>
    tests(() => openWorld('postgres'), 'postgres'),
  );
}
