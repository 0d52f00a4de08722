// Which nodes have the files of a tree, by the path of its workspace (16 §7).
import { describe, expect, test } from 'vitest';
import { findPlace, listPlaces } from '#core/policy/cluster/tree-place.ts';

const cluster = {
  node_name: 'a',
  shared_roots: ['/srv/shared', '/srv/shared/fast', '/data'],
  no_files: '/srv/shared/none',
};

describe('the place of a tree', () => {
  test.each([
    ['/srv/shared/app', 'shared:/srv/shared'],
    ['/srv/shared', 'shared:/srv/shared'],
    ['/srv/shared/fast/app', 'shared:/srv/shared/fast'],
    ['/srv/shared/none', 'anywhere'],
    ['/srv/sharedish/app', 'node:a'],
    ['/srv', 'node:a'],
    ['/mnt/own/app', 'node:a'],
  ])('%s lies in %s', (path, place) => {
    expect(findPlace(path, cluster)).toBe(place);
  });

  test('a root of the whole file system shares everything', () => {
    expect(findPlace('/mnt/own/app', { node_name: 'a', shared_roots: ['/'], no_files: '' })).toBe('shared:/');
  });

  test('a node has each place that one of its workspaces can lie in', () => {
    expect(listPlaces(cluster)).toEqual([
      'anywhere',
      'node:a',
      'shared:/srv/shared',
      'shared:/srv/shared/fast',
      'shared:/data',
    ]);
  });
});
