// The settings in a real browser, of a server process: what is in force, and where a person changes it (15 §1, 17 §3).
import fs from 'node:fs';
import path from 'node:path';
import { describe, expect, test } from 'vitest';
import { createMetisClient } from '#client/client.ts';
import { address, start, temporaryHome } from '../app/metis.ts';
import { FIXTURE } from '../tool/mcp/world.ts';
import { browserEndpoint, expectWhole, openTab } from './page.ts';

const KEY = 'sk-ant-api03-a-key-that-nobody-may-see';

/** Lines of `server.yaml`: the tests name them. */
const YAML = [
  'budgets:',
  '  daily_usd: "12.50"',
  'mcp_servers:',
  `  good: { transport: stdio, command: ${process.execPath}, args: [${FIXTURE}, good] }`,
  `  gone: { transport: stdio, command: ${process.execPath}, args: [${FIXTURE}, exits] }`,
  'tool_confirmation:',
  '  default: { write: auto }',
  '',
].join('\n');

/** A process of its own, with a file, a variable and flags that set something. */
async function startConfigured() {
  const home = temporaryHome();
  const data = path.join(home.path, '.metis');
  fs.mkdirSync(data);
  fs.writeFileSync(path.join(data, 'server.yaml'), YAML);
  const server = start(['serve', '--port', '0', '--set', 'trace.retention_days=30'], {
    home: home.path,
    env: { METIS_BUDGETS_ON_REACHED: 'stop', ANTHROPIC_API_KEY: KEY },
  });
  const url = await address(server);
  const end = async () => {
    await server.stop('SIGKILL');
    home.remove();
  };
  return { url, data, end, client: createMetisClient({ baseUrl: url }), home: home.path };
}

describe.skipIf(browserEndpoint === null)('the settings', () => {
  // Promise 17.6: settings with values from files, variables and flags, and with faulty MCP servers, pass axe.
  test('name file and line, variable, flag or default beside each value, and never the text of a key', async () => {
    const { url, data, client, home, end } = await startConfigured();
    try {
      const { page, errors } = await openTab(`${url}/#/settings`, { viewport: { width: 1440, height: 900 } });
      const row = (panel: string, key: string) =>
        page.getByRole('region', { name: panel, exact: true }).getByRole('row').filter({ hasText: key });
      const cells = (panel: string, key: string) => row(panel, key).getByRole('cell').allTextContents();
      const file = path.join(data, 'server.yaml');
      await row('Budgets', 'budgets.daily_usd').waitFor();
      expect(await cells('Budgets', 'budgets.daily_usd')).toEqual(['budgets.daily_usd', '12.5', `${file}:2`]);
      expect(await cells('Budgets', 'budgets.on_reached')).toEqual([
        'budgets.on_reached',
        'stop',
        'environment METIS_BUDGETS_ON_REACHED',
      ]);
      expect(await cells('Budgets', 'budgets.session_default_usd')).toEqual([
        'budgets.session_default_usd',
        'not set',
        'default',
      ]);
      expect(await cells('Approvals', 'default.write')).toEqual([
        'tool_confirmation.default.write',
        'auto',
        `${file}:7`,
      ]);
      expect(await cells('Server and data', 'server.port')).toEqual(['server.port', '0', '--port']);
      expect(await cells('Server and data', 'retention_days')).toEqual(['trace.retention_days', '30', '--set']);
      const places = page.getByRole('region', { name: 'Where settings are' });
      for (const text of [data, path.join(data, 'metis.db'), file])
        await places.getByText(text, { exact: true }).waitFor();
      const keys = page.getByRole('region', { name: 'Provider keys' });
      await keys.getByRole('listitem').filter({ hasText: 'anthropic' }).getByText('environment').waitFor();
      await page.getByRole('region', { name: 'Nodes' }).getByText('active').waitFor();

      const servers = page.getByRole('region', { name: 'MCP servers' });
      await servers.getByText(`${file}:3`).waitFor();
      await servers.getByText('starts with the first session').first().waitFor();
      await client.createSession({ workspace_path: home });
      await page.reload();
      await servers
        .getByRole('listitem')
        .filter({ hasText: 'good' })
        .getByText(/^\d+ tools?: /)
        .waitFor();
      await servers.getByRole('listitem').filter({ hasText: 'gone' }).getByText('fault', { exact: true }).waitFor();

      const others = page.getByRole('region', { name: 'Other settings' });
      expect(await others.getByText('turn.max_llm_calls').count()).toBe(0);
      await page.getByRole('button', { name: /^Show \d+ defaults$/ }).click();
      await others.getByText('turn.max_llm_calls').waitFor();
      expect(await page.content()).not.toContain(KEY);
      await expectWhole(page, 'settings');
      expect(errors).toEqual([]);
    } finally {
      await end();
    }
  });
});
