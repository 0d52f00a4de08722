// `GET /settings` of a server process: every value with where it is set, and no secret in it (15 §1).
import fs from 'node:fs';
import path from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import type { SettingsReport } from '#client/client.ts';
import { type StartedHere, startHere } from './here.ts';
import { address, getJson, temporaryHome } from './metis.ts';

const KEY = 'sk-ant-api03-a-key-that-nobody-may-see';
const YAML = `# mine
budgets:
  warn_ratio: 0.5
  daily_usd: "12.50"
mcp_servers:
  notes:
    transport: stdio
    command: notes-server
    args: [--token, argument-secret]
    env: { NOTES: variable-secret }
    enabled: false
notify:
  - { url: "https://hooks.example/path-secret?x=query-secret", events: [turn.failed] }
gateway:
  keys: { ci: { token_sha256: ${'ab'.repeat(32)}, daily_usd: "5" } }
`;

let home: ReturnType<typeof temporaryHome>;
let server: StartedHere | undefined;
beforeEach(() => {
  home = temporaryHome();
});
afterEach(async () => {
  await server?.stop();
  home.remove();
});

describe('GET /settings', () => {
  it('names file and line, variable, flag or default of each value, and holds no secret', async () => {
    const data = path.join(home.path, '.metis');
    fs.mkdirSync(data);
    fs.writeFileSync(path.join(data, 'server.yaml'), YAML);
    fs.writeFileSync(path.join(data, '.env'), `ANTHROPIC_API_KEY=${KEY}\nMETIS_TURN_MAX_LLM_CALLS=7\n`, {
      mode: 0o600,
    });
    server = startHere(['serve', '--port', '0', '--set', 'trace.retention_days=30'], {
      home: home.path,
      env: { METIS_BUDGETS_ON_REACHED: 'stop', OPENAI_API_KEY: 'sk-openai-that-nobody-may-see-either' },
    });
    const report = (await getJson(`${await address(server)}/settings`)) as SettingsReport;
    const find = (key: string) => report.settings.find((one) => one.key === key);
    const file = path.join(data, 'server.yaml');
    expect(find('budgets.warn_ratio')).toMatchObject({ value: 0.5, source: `${file}:3` });
    expect(find('budgets.daily_usd')).toMatchObject({ value: '12.5', source: `${file}:4` });
    expect(find('budgets.on_reached')).toMatchObject({ value: 'stop', source: 'environment METIS_BUDGETS_ON_REACHED' });
    expect(find('turn.max_llm_calls')).toMatchObject({
      value: 7,
      source: `${path.join(data, '.env')} METIS_TURN_MAX_LLM_CALLS`,
    });
    expect(find('trace.retention_days')).toMatchObject({ value: 30, source: '--set' });
    expect(find('server.port')).toMatchObject({ value: 0, source: '--port' });
    expect(find('budgets.session_default_usd')).toMatchObject({ value: null, source: 'default' });
    expect(find('registry.path')?.source).toBe('default');
    expect(find('mcp_servers')).toMatchObject({
      value: { notes: { transport: 'stdio', command: 'notes-server', enabled: false } },
      source: `${file}:5`,
    });
    expect(find('notify')?.value).toEqual([{ url: 'https://hooks.example', events: ['turn.failed'] }]);
    expect(find('gateway.keys')?.value).toEqual({ ci: { daily_usd: '5' } });
    expect(report).toMatchObject({ data_dir: data, database: path.join(data, 'metis.db') });
    expect(report.files.at(-1)).toBe(file);
    const findKey = (provider: string) => report.keys.find((one) => one.provider === provider);
    expect(findKey('anthropic')).toMatchObject({ variable: 'ANTHROPIC_API_KEY', source: path.join(data, '.env') });
    expect(findKey('openai')).toMatchObject({ variable: 'OPENAI_API_KEY', source: 'environment', required: true });
    expect(findKey('openrouter')).toMatchObject({ source: null, required: true });
    expect(findKey('scripted')).toBeUndefined();
    expect(JSON.stringify(report)).not.toMatch(/secret|nobody|abab/);
  });
});
