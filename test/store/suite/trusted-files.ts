// Files that a person has trusted: one digest a path, in its workspace (20 §11).

import { expect, test } from 'vitest';
import type { TrustedFile } from '#protocol/worker-definition.ts';
import type { OpenStore } from './world.ts';

export function trustedFileSuite(open: OpenStore): void {
  // Promise 13.44: Trust is kept by both databases.
  test('a trusted file has the digest it was given last, also after a restart, until it is removed', async () => {
    const world = await open();
    const file = (over: Partial<TrustedFile> = {}): TrustedFile => ({
      workspace_path: '/srv/shop',
      path: 'workers/a.yaml',
      sha256: 'a'.repeat(64),
      trusted_by: 'user',
      trusted_at: world.time.now,
      ...over,
    });
    const put = (one: TrustedFile) =>
      world.journal.commit({ writes: [{ kind: 'trusted_file.put', file: one }], emit: [] });
    await put(file());
    await put(file({ path: 'workers/B.yaml' }));
    await put(file({ workspace_path: '/srv/other', sha256: 'b'.repeat(64) }));
    const newer = file({ sha256: 'c'.repeat(64), trusted_at: world.time.now + 1 });
    await put(newer);
    const again = await world.reopen();
    const { trustedFiles } = again.store;
    expect(await trustedFiles.digest('/srv/shop', 'workers/a.yaml')).toBe('c'.repeat(64));
    expect(await trustedFiles.digest('/srv/shop', 'workers/b.yaml')).toBeNull();
    expect(await trustedFiles.list('/srv/shop')).toEqual([file({ path: 'workers/B.yaml' }), newer]);
    const gone = { workspace_path: '/srv/shop', path: 'workers/a.yaml' };
    await again.journal.commit({ writes: [{ kind: 'trusted_file.remove', ...gone }], emit: [] });
    expect(await trustedFiles.digest('/srv/shop', 'workers/a.yaml')).toBeNull();
    expect(await trustedFiles.digest('/srv/other', 'workers/a.yaml')).toBe('b'.repeat(64));
  });
}
