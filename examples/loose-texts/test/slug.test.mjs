import assert from 'node:assert/strict';
import { test } from 'node:test';
import { slug } from '../src/slug.mjs';

test('letters and digits stay, in lower case', () => {
  assert.equal(slug('Node 24'), 'node-24');
});

test('one dash for everything between, none at the ends', () => {
  assert.equal(slug('  Tea & (more) tea!  '), 'tea-more-tea');
  assert.equal(slug('---'), '');
});
