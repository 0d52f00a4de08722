// Where a request goes: never to another operation than the one that was meant.
import { expect, test } from 'vitest';
import { resolveUrl } from '#client/request.ts';

test('a path stands below that of the server, and an id that is a step upwards is refused', () => {
  expect(resolveUrl({ baseUrl: 'http://a.test/x/' }, '/sessions/sess_1').href).toBe('http://a.test/x/sessions/sess_1');
  expect(resolveUrl({ baseUrl: 'http://a.test' }, '/sessions/...%2e').pathname).toBe('/sessions/...%2e');
  for (const path of ['/sessions/..', '/sessions/.', '/sessions/../stream', '/confirmations/..'])
    expect(() => resolveUrl({ baseUrl: 'http://a.test' }, path), path).toThrow('an id cannot be');
});
