import assert from 'node:assert/strict';
import { test } from 'node:test';
import { code, FORMATTED, name, price, stock } from '../src/format.mjs';

const item = { name: ' red  paint ', cents: 1250, stock: 0, code: 'ab12' };

test('each column is formatted', () => {
  assert.equal(name(item), 'red paint');
  assert.equal(price(item), '12.50');
  assert.equal(stock(item), 'sold out');
  assert.equal(code(item), 'AB-12');
});

test('the formatted columns are listed, whoever formatted them', () => {
  assert.deepEqual([...FORMATTED].sort(), ['code', 'stock']);
});
