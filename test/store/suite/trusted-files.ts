// Files that a person has trusted: one digest a path, in its workspace (20 §11).

import { expect, test } from 'vitest';
import type { TrustedText } from '#protocol/worker-definition.ts';
import type { OpenStore } from './world.ts';

export function trustedFileSuite(open: OpenStore): void {
  // Promise 13.44: Trust is kept by both databases.
  test('a trusted file has the digest it was given last, also after a restart, until it is removed', async () => {
    const world = await open();
    const file = (over: Partial<TrustedText> = {}): TrustedText => ({
      workspace_path: '/srv/shop',
      path: 'workers/a.yaml',
      sha256: 'a'.repeat(64),
      trusted_by: 'user',
      trusted_at: world.time.now,
      content: 'instructions: é\n',
      ...over,
    });
    const put = (one: TrustedText) =>
      world.journal.commit({ writes: [{ kind: 'trusted_file.put', file: one }], emit: [] });
    await put(file());
    await put(file({ path: 'workers/B.yaml', content: null }));
    await put(file({ workspace_path: '/srv/other', sha256: 'b'.repeat(64) }));
    const newer = file({ sha256: 'c'.repeat(64), trusted_at: world.time.now + 1, content: 'b' });
    await put(newer);
    const again = await world.reopen();
    const { trustedFiles } = again.store;
    expect(await trustedFiles.digest('/srv/shop', 'workers/a.yaml')).toBe('c'.repeat(64));
    expect(await trustedFiles.digest('/srv/shop', 'workers/b.yaml')).toBeNull();
    const listed = [file({ path: 'workers/B.yaml' }), newer].map(({ content: _, ...one }) => one);
    expect(await trustedFiles.list('/srv/shop')).toEqual(listed);
    expect(await trustedFiles.find('/srv/shop', 'workers/a.yaml')).toEqual(newer);
    expect((await trustedFiles.find('/srv/shop', 'workers/B.yaml'))?.content).toBeNull();
    expect((await trustedFiles.find('/srv/other', 'workers/a.yaml'))?.content).toBe('instructions: é\n');
    const gone = { workspace_path: '/srv/shop', path: 'workers/a.yaml' };
    await again.journal.commit({ writes: [{ kind: 'trusted_file.remove', ...gone }], emit: [] });
    expect(await trustedFiles.digest('/srv/shop', 'workers/a.yaml')).toBeNull();
    expect(await trustedFiles.find('/srv/shop', 'workers/a.yaml')).toBeNull();
    expect(await trustedFiles.digest('/srv/other', 'workers/a.yaml')).toBe('b'.repeat(64));
  });
}
