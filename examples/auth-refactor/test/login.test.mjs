// What a caller may rely on, for every provider alike.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { providers } from '../src/index.mjs';

const NOW = 1_700_000_000;
const good = { email: ' Ada@Example.org ', token: 'x'.repeat(24), expires_at: NOW + 60 };

for (const [name, login] of Object.entries(providers)) {
  test(`${name} returns an identity with a normalised subject`, () => {
    const identity = login(good, NOW);
    assert.equal(identity.provider, name);
    assert.equal(identity.subject, `${name}:ada@example.org`);
    assert.ok(identity.scopes.length > 0);
  });

  test(`${name} refuses bad input with the same messages`, () => {
    assert.throws(() => login({ ...good, email: ' ' }, NOW), { name: 'TypeError', message: 'email is required' });
    assert.throws(() => login({ ...good, email: 'ada' }, NOW), { name: 'TypeError', message: 'email is not valid' });
    assert.throws(() => login({ ...good, token: 'short' }, NOW), { name: 'TypeError', message: 'token is too short' });
    assert.throws(() => login({ ...good, expires_at: NOW }, NOW), { name: 'RangeError', message: 'token has expired' });
  });
}
