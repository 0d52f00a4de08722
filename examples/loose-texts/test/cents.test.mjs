import assert from 'node:assert/strict';
import { test } from 'node:test';
import { cents } from '../src/cents.mjs';

test('whole amounts and decimals', () => {
  assert.equal(cents('12'), 1200);
  assert.equal(cents('12.5'), 1250);
  assert.equal(cents('12.34'), 1234);
});

test('an amount below zero', () => {
  assert.equal(cents('-12.34'), -1234);
  assert.equal(cents('-0.05'), -5);
});

test('anything else is no amount', () => {
  for (const text of ['', '-', '1.', '.5', '1.005', 'ten', '1 2']) assert.throws(() => cents(text), RangeError);
});
