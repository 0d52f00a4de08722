// Paths of trusted files over HTTP: what no file can be named is refused by its field (20 §11).
import { expect, test } from 'vitest';
import { startServer } from '../support/http.ts';
import { scenario } from '../support/scenario.ts';

test('a path with a NUL character is refused by its field, before a database that stores none sees it', async () => {
  const t = await startServer({ scenario: scenario([{ match: {}, times: 'inf', respond: { text: 'ok' } }]) });
  const query = new URLSearchParams({ workspace_path: t.workspace, path: 'a\0b' });
  const body = { workspace_path: t.workspace, path: 'a\0b', sha256: '0'.repeat(64) };
  for (const answer of [
    await t.call('GET', `/workspaces/trust?${query}`),
    await t.call('DELETE', `/workspaces/trust?${query}`),
    await t.call('POST', '/workspaces/trust', body),
  ]) {
    expect(answer.status).toBe(400);
    expect(answer.body.error.details.issues).toEqual([{ path: 'path', message: 'must hold no NUL character' }]);
  }
});
