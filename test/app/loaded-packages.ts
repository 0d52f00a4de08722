// The packages whose code a command runs, by the coverage that its process writes at its end.
import fs from 'node:fs';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { expect, onTestFinished } from 'vitest';
import { address, start, temporaryHome } from './metis.ts';

interface Script {
  readonly url: string;
  readonly functions: readonly {
    readonly functionName: string;
    readonly ranges: readonly { readonly count: number }[];
  }[];
}

/** The packages whose code a command has run in its life: installed beside it, or bundled into its files. */
export async function loadedBy(
  args: readonly string[],
  use: (url: string) => Promise<void> = async () => {},
  env: Readonly<Record<string, string>> = {},
): Promise<ReadonlySet<string>> {
  const home = temporaryHome();
  onTestFinished(home.remove);
  const told = path.join(home.path, 'coverage');
  const command = start(args, { home: home.path, env: { ...env, NODE_V8_COVERAGE: told } });
  if (args[0] === 'serve') {
    await use(await address(command));
    expect((await command.stop()).code).toBe(0);
  } else await command.finished;
  const scripts = fs.readdirSync(told).flatMap((name) => {
    const { result } = JSON.parse(fs.readFileSync(path.join(told, name), 'utf8')) as { result: Script[] };
    return result;
  });
  return new Set(
    scripts.flatMap(listFiles).flatMap((file) => /node_modules\/((?:@[^/]+\/)?[^/]+)/.exec(file)?.[1] ?? []),
  );
}

/** A file of a library; of a built file what was bundled into it, less the modules that it holds and did not run. */
function listFiles({ url, functions }: Script): readonly string[] {
  if (!url.startsWith('file:')) return [];
  const map = `${fileURLToPath(url)}.map`;
  if (url.includes('/node_modules/') || !fs.existsSync(map)) return [url];
  const { sources } = JSON.parse(fs.readFileSync(map, 'utf8')) as { sources: string[] };
  // The bundler wraps each module of the old format in a function that has the name of its file.
  const idle = functions.filter(({ ranges }) => ranges[0]!.count === 0).map(({ functionName }) => functionName);
  const names = new Set(idle.filter((name) => name.startsWith('node_modules/')));
  return sources.filter((source) => !names.has(source.replace(/^(?:\.\.\/)+/, '')));
}
