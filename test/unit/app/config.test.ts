// Where settings come from and which one wins (chapter 15).
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { defaultConfig } from '#protocol/config.ts';
import { CONFIG_KEYS, type ConfigInput, loadConfig, toEnvironmentName } from '#server/config.ts';

let root: string;
let input: ConfigInput;

beforeEach(() => {
  root = fs.mkdtempSync(path.join(os.tmpdir(), 'metis-config-'));
  for (const dir of ['home/.metis', 'package/config', 'work']) fs.mkdirSync(path.join(root, dir), { recursive: true });
  input = {
    env: {},
    flags: {},
    cwd: path.join(root, 'work'),
    home: path.join(root, 'home'),
    packageDir: path.join(root, 'package'),
  };
});
afterEach(() => fs.rmSync(root, { recursive: true, force: true }));

const shipped = (text: string) => fs.writeFileSync(path.join(root, 'package/config/server.yaml'), text);
const personal = (text: string) => fs.writeFileSync(path.join(root, 'home/.metis/server.yaml'), text);
function load(rest: Partial<ConfigInput> = {}) {
  const loaded = loadConfig({ ...input, ...rest });
  if (!loaded.ok) throw new Error(loaded.error.join('\n'));
  return loaded.value.config;
}
function problems(rest: Partial<ConfigInput> = {}): string[] {
  const loaded = loadConfig({ ...input, ...rest });
  return loaded.ok ? [] : loaded.error;
}

describe('precedence', () => {
  // Promise 15.1: a flag beats the environment, the environment a file, a file the default; the personal file beats the shipped one; --config replaces both.
  it('a flag beats the environment, the environment a file, a file the default', () => {
    personal('server: { port: 8000 }\n');
    const env = { METIS_SERVER_PORT: '9000' };
    expect(load({ env, flags: { port: '9001' } }).server.port).toBe(9001);
    expect(load({ env }).server.port).toBe(9000);
    expect(load().server.port).toBe(8000);
    personal('');
    expect(load().server.port).toBe(8420);
  });

  // Promise 15.1: the personal file beats the shipped one key by key, and --config replaces both.
  it('the personal file beats the shipped one key by key, and --config replaces both', () => {
    shipped('server: { port: 7001, host: localhost }\nlog: { level: warn }\n');
    personal('server: { port: 7002 }\n');
    expect(load().server).toMatchObject({ port: 7002, host: 'localhost' });
    fs.writeFileSync(path.join(root, 'work/other.yaml'), 'log: { level: debug }\n');
    const config = load({ flags: { config: 'other.yaml' } });
    expect(config.log.level).toBe('debug');
    expect(config.server).toMatchObject({ port: 8420, host: '127.0.0.1' });
  });

  it('PORT and HOST are honoured below the names of the product', () => {
    expect(load({ env: { PORT: '5000', HOST: 'localhost' } }).server).toMatchObject({ port: 5000, host: 'localhost' });
    expect(load({ env: { PORT: '5000', METIS_SERVER_PORT: '5001' } }).server.port).toBe(5001);
  });

  it('lists and maps are replaced whole and written as JSON in the environment', () => {
    shipped('tools: { timeouts: { per_tool: { grep: 5 } } }\n');
    personal('tools: { timeouts: { per_tool: { shell: 9 } } }\n');
    expect(load().tools.timeouts.per_tool).toEqual({ shell: 9 });
    const env = { METIS_TOOLS_DISABLED: '["shell"]', METIS_TURN_TIMEOUT_SECONDS: 'null' };
    expect(load({ env }).tools.disabled).toEqual(['shell']);
    expect(load({ env }).turn.timeout_seconds).toBeNull();
  });

  // Promise 15.4: modes of single tools are merged over the default map.
  it('modes of single tools are added to the default ones, so that delegate keeps its own until it is named', () => {
    personal('tool_confirmation: { per_tool: { shell: prompt } }\n');
    expect(load().tool_confirmation.per_tool).toEqual({ delegate: 'auto', shell: 'prompt' });
    const env = { METIS_TOOL_CONFIRMATION_PER_TOOL: '{"write_file":"auto"}' };
    expect(load({ env }).tool_confirmation.per_tool).toEqual({ delegate: 'auto', write_file: 'auto' });
    const flags = { set: ['tool_confirmation.per_tool={"delegate":"prompt"}'] };
    expect(load({ env, flags }).tool_confirmation.per_tool).toEqual({ delegate: 'prompt' });
  });

  it('--set names any key', () => {
    const config = load({
      flags: { set: ['delegation.max_depth=3', 'budgets.daily_usd=5', 'tools.shell.sandbox=required'] },
    });
    expect(config.delegation.max_depth).toBe(3);
    expect(config.budgets.daily_usd).toBe('5');
    expect(config.tools.shell.sandbox).toBe('required');
  });
});

describe('paths', () => {
  it('a relative path belongs to its file, on the command line to the working directory, and ~ is the home', () => {
    personal(
      'storage: { db_path: data/a.db }\nskills: { global_dir: ~/skills }\npricing: { tables: [builtin, house.yaml] }\n',
    );
    const config = load();
    expect(config.storage.db_path).toBe(path.join(root, 'home/.metis/data/a.db'));
    expect(config.skills.global_dir).toBe(path.join(root, 'home/skills'));
    expect(config.pricing.tables).toEqual(['builtin', path.join(root, 'home/.metis/house.yaml')]);
    expect(load({ flags: { set: ['storage.db_path=b.db'] } }).storage.db_path).toBe(path.join(root, 'work/b.db'));
  });

  it('--data moves every default below it and the personal file', () => {
    fs.mkdirSync(path.join(root, 'work/d'));
    fs.writeFileSync(path.join(root, 'work/d/server.yaml'), 'server: { port: 7777 }\n');
    const config = load({ flags: { data: 'd' } });
    expect(config.storage.db_path).toBe(path.join(root, 'work/d/metis.db'));
    expect(config.workers.generated_dir).toBe(path.join(root, 'work/d/generated-workers'));
    expect(config.server.port).toBe(7777);
  });

  it('the shipped registry serves only where the default one is missing', () => {
    expect(load().registry.path).toBe(path.join(root, 'package/config/registry.yaml'));
    fs.writeFileSync(path.join(root, 'home/.metis/registry.yaml'), 'models: {}\n');
    expect(load().registry.path).toBe(path.join(root, 'home/.metis/registry.yaml'));
    expect(load({ flags: { set: ['registry.path=gone.yaml'] } }).registry.path).toBe(path.join(root, 'work/gone.yaml'));
  });
});

describe('problems', () => {
  it('a shared root that is relative is refused: it would be another folder on each node', () => {
    const set = ['cluster.shared_roots=["/srv/a","~/b","work/c","./d",""]'];
    const fault = (at: number) => `--set: cluster.shared_roots.${at}: must be an absolute path, the same on every node`;
    expect(problems({ flags: { set } })).toEqual([2, 3, 4].map(fault));
    expect(load({ flags: { set: ['cluster.shared_roots=["/srv/a","~/b"]'] } }).cluster.shared_roots).toEqual([
      '/srv/a',
      path.join(root, 'home/b'),
    ]);
  });

  it('a password that ends an address too early is told how to be written, and not shown', () => {
    for (const password of ['sec/ret', '12/34secret', 'sec#ret', '12#34', 'sec?ret', '12?34', '1/2=3']) {
      const env = { METIS_DATABASE_URL: `postgres://metis:${password}@db.internal:5432/metis` };
      expect(problems({ env }), password).toEqual([`environment METIS_DATABASE_URL: ${TORN}`]);
    }
    for (const rest of [
      'metis:p%2Fw@host/db',
      'host/db?user=me&password=a@b',
      'me:a@b@host:1/db?options=-csearch_path%3Da',
    ])
      expect(load({ env: { METIS_DATABASE_URL: `postgres://${rest}` } }).database.url).toContain(rest);
  });
  const TORN = 'database.url: must have "/", "#" and "?" of its password written as %2F, %23 and %3F';

  it('every fault is one line that names source, key and reason, all of them at once', () => {
    personal('delegation: { max_dept: 2, max_depth: 9 }\nrecovery: { on_start: mark }\n');
    const file = path.join(root, 'home/.metis/server.yaml');
    const lines = problems({ env: { METIS_NOPE: '1' }, flags: { port: 'x', set: ['nope.key=1', 'bare'] } });
    expect(lines).toHaveLength(7);
    expect(lines).toContain(`${file}: delegation.max_dept: unknown key; did you mean "delegation.max_depth"?`);
    expect(lines).toContain('environment METIS_NOPE: no configuration key has this name');
    expect(lines.filter((l) => l.startsWith(`${file}: delegation.max_depth: `))).toHaveLength(1);
    expect(lines.filter((l) => l.startsWith(`${file}: recovery.on_start: `))).toHaveLength(1);
    expect(lines.filter((l) => l.startsWith('--port: server.port: '))).toHaveLength(1);
    expect(lines.filter((l) => l.startsWith('--set'))).toHaveLength(2);
    for (const line of lines) expect(line).not.toContain('\n');
  });

  it('of an unknown key it says what was probably meant: a misspelt name, or one without what stands before it', () => {
    const told = (text: string) => {
      personal(text);
      return problems()[0]!.replace(/^.*server\.yaml: /, '');
    };
    expect(told('server: { prt: 1 }\n')).toBe('server.prt: unknown key; did you mean "server.port"?');
    expect(told('servr: { port: 1 }\n')).toBe('servr: unknown key; did you mean "server"?');
    expect(told('port: 1\n')).toBe('port: unknown key; did you mean "server.port"?');
    expect(told('daily_usd: "1"\n')).toBe('daily_usd: unknown key; did you mean "budgets.daily_usd"?');
    expect(told('server: { colour: 1 }\n')).toBe('server.colour: unknown key');
    expect(told('notify: [{ url: "http://a.example/", event: [] }]\n')).toContain('notify.0.events: is required');
    personal('');
    expect(problems({ flags: { set: ['tols.shell.sandbox=off', 'server.port.x=1'] } })).toEqual([
      '--set: tols.shell.sandbox: unknown key; did you mean "tools.shell.sandbox"?',
      '--set: server.port.x: unknown key',
    ]);
    expect(problems({ env: { METIS_SERVER_PROT: '1', METIS_X: '1' } })).toEqual([
      'environment METIS_SERVER_PROT: no configuration key has this name; did you mean "METIS_SERVER_PORT"?',
      'environment METIS_X: no configuration key has this name',
    ]);
  });

  it('variables of compose files and of a Service in Kubernetes set no key and stop nothing', () => {
    const compose = { METIS_WORKSPACES: '/w', METIS_DATABASE_PASSWORD: 'x', METIS_TOKEN: 'x' };
    const links = {
      METIS_SERVICE_HOST: '10.0.0.1',
      METIS_SERVICE_PORT: '8420',
      METIS_SERVICE_PORT_HTTP: '8420',
      METIS_PORT: 'tcp://10.0.0.1:8420',
      METIS_PORT_8420_TCP: 'tcp://10.0.0.1:8420',
      METIS_PORT_8420_TCP_PROTO: 'tcp',
      METIS_PORT_8420_TCP_PORT: '8420',
      METIS_PORT_8420_TCP_ADDR: '10.0.0.1',
    };
    const warnings = (env: Record<string, string>) => {
      const loaded = loadConfig({ ...input, env });
      return loaded.ok ? loaded.value.warnings : loaded.error;
    };
    expect(warnings({ ...compose, ...links })).toEqual([]);
    expect(warnings({ METIS_CONFIG: './config', METIS_PORT: '9000' })).toEqual([
      'environment METIS_CONFIG: names the folder that docker-compose mounts, and sets nothing here; name a file with --config',
      'environment METIS_PORT: is the port that docker-compose publishes, and sets nothing here; METIS_SERVER_PORT sets the port',
    ]);
    expect(load({ env: { METIS_PORT: '9000' } }).server.port).toBe(8420);
    expect(problems({ env: { METIS_SERVICE: '1', METIS_PORT_TCP: '1' } })).toHaveLength(2);
  });

  it('a time of more than a century is refused, since its end could not be written down', () => {
    const day = 86_400;
    const longest = { 'turn.timeout_seconds': 36_500 * day, 'tool_confirmation.timeout_seconds': 36_500 * day };
    const all = { ...longest, 'shutdown.drain_seconds': 36_500 * day, 'trace.retention_days': 36_500 };
    for (const [key, limit] of Object.entries(all)) {
      expect(problems({ flags: { set: [`${key}=${limit}`] } })).toEqual([]);
      const [line, ...more] = problems({ flags: { set: [`${key}=${limit + 1}`] } });
      expect([line, more]).toEqual([expect.stringContaining(`--set: ${key}: `), []]);
      expect(line).toContain(String(limit));
    }
    const perTool = `tools.timeouts.per_tool={"shell":${36_500 * day + 1}}`;
    expect(problems({ flags: { set: [perTool] } })).toHaveLength(1);
  });

  // Promise 12.14: a weight out of range is a configuration error that names the key.
  it('a weight of cost above 1 is refused by its name', () => {
    personal('pattern: { cost_weight: 1.5 }\n');
    expect(problems().filter((line) => line.includes('pattern.cost_weight: '))).toHaveLength(1);
  });

  it('delegate_depth above max_depth is refused where it was set', () => {
    personal('delegation: { max_depth: 2, delegate_depth: 3 }\n');
    expect(problems()).toEqual([
      `${path.join(root, 'home/.metis/server.yaml')}: delegation.delegate_depth: must not be above delegation.max_depth`,
    ]);
  });

  // Promise 13.43: what every created worker would have wrong is refused by its key.
  it('what every created worker would have wrong is refused by its key', () => {
    personal(
      [
        'workers:',
        '  creation:',
        '    default_sandboxes: { in: { path: /etc }, out: { path: out, mode: wr } }',
        '    default_attachment_policy: { max_attachments: -1, max_files: 3 }',
        '    default_tool_rules: { shell: { approval_required: maybe } }',
        '    default_tools: [""]',
      ].join('\n'),
    );
    const file = path.join(root, 'home/.metis/server.yaml');
    expect(problems().sort()).toEqual(
      [
        'default_attachment_policy.max_attachments: must be at least 0',
        'default_attachment_policy.max_files: unknown key',
        'default_sandboxes.out.mode: must be one of "ro", "rw"',
        'default_tool_rules.shell.approval_required: must be true or false',
        'default_tools.0: must not be empty',
      ].map((line) => `${file}: workers.creation.${line}`),
    );
    personal('workers: { creation: { default_sandboxes: { out: { path: ., mode: RW }, in: { path: docs } } } }\n');
    expect(problems()).toEqual([
      `${file}: workers.creation.default_sandboxes.out.path: sandbox_overlap: "out" may be written to and holds "in", which may not`,
    ]);
    personal(
      'workers: { creation: { default_sandboxes: { out: { path: out, mode: rw } }, default_tools: [read_*] } }\n',
    );
    expect(problems()).toEqual([]);
  });

  it('broken YAML is one line with its place', () => {
    personal('server: { port: 8000\nlog: [\n');
    const lines = problems();
    expect(lines.length).toBeGreaterThan(0);
    for (const line of lines) expect(line).toMatch(/server\.yaml: malformed YAML: .*line \d+/);
  });

  it('a --config file that is missing is named', () => {
    expect(problems({ flags: { config: 'gone.yaml' } })).toEqual([
      `${path.join(root, 'work/gone.yaml')}: cannot be read: ENOENT`,
    ]);
  });

  it('a reachable host needs tokens and workspace roots, and is then rate limited by default', () => {
    const both = problems({ flags: { host: '0.0.0.0' } });
    expect(both).toHaveLength(1);
    expect(both[0]).toContain('set server.auth_tokens and server.workspace_roots first');
    const token = JSON.stringify(['x'.repeat(32)]);
    const one = problems({ flags: { host: '0.0.0.0' }, env: { METIS_SERVER_AUTH_TOKENS: token } });
    expect(one[0]).toContain('set server.workspace_roots first');
    const env = { METIS_SERVER_AUTH_TOKENS: token, METIS_SERVER_WORKSPACE_ROOTS: '["/srv"]' };
    expect(load({ flags: { host: '0.0.0.0' }, env }).server.rate_limit_rpm).toBe(600);
    expect(
      load({ flags: { host: '0.0.0.0', set: ['server.rate_limit_rpm=null'] }, env }).server.rate_limit_rpm,
    ).toBeNull();
    expect(load().server.rate_limit_rpm).toBeNull();
  });

  // Promise 05.20: tokens shorter than 32 characters and "*" as an origin stop the start.
  it('short tokens, "*" as an origin, and recording while replaying stop the start', () => {
    expect(problems({ env: { METIS_SERVER_AUTH_TOKENS: '["short"]' } })[0]).toContain('at least 32 characters');
    expect(problems({ env: { METIS_SERVER_CORS_ALLOWED_ORIGINS: '["*"]' } })[0]).toContain('list each origin');
    expect(problems({ env: { METIS_PROVIDERS_RECORD: 'a', METIS_PROVIDERS_REPLAY: 'b' } })).toHaveLength(1);
  });
});

it('no two keys share an environment name', () => {
  const names = [...CONFIG_KEYS.keys()].map(toEnvironmentName);
  expect(new Set(names).size).toBe(names.length);
});

const CHAPTER = path.resolve(import.meta.dirname, '../../../docs/spec/15-config.md');
describe('the table of the configuration chapter', () => {
  // Promise 15.3: the chapter's table and the schema have the same keys and defaults.
  it('has the keys and defaults of the schema', () => {
    const table = tableKeys(fs.readFileSync(CHAPTER, 'utf8'));
    expect([...table.keys()].sort()).toEqual([...CONFIG_KEYS.keys()].map(collapsed).filter(unique).sort());
    const defaults = defaultConfig('~/.metis');
    let compared = 0;
    for (const [key, shown] of table) {
      if (shown === undefined) continue;
      compared++;
      const actual = key.split('.').reduce<unknown>((at, part) => (at as Record<string, unknown>)[part], defaults);
      expect({ key, value: actual }).toEqual({ key, value: shown });
    }
    // Two defaults stand in another chapter.
    expect(compared).toBe(table.size - 2);
  });
});

/** Keys whose map of entries the table shows as one row. */
function collapsed(key: string): string {
  return key.startsWith('workers.creation.') ? 'workers.creation' : key;
}
function unique<T>(value: T, index: number, all: readonly T[]): boolean {
  return all.indexOf(value) === index;
}

/** key -> default as a value; undefined where the table refers to another chapter or a condition. */
function tableKeys(markdown: string): Map<string, unknown> {
  const found = new Map<string, unknown>();
  const section = markdown.slice(markdown.indexOf('## 2. Keys'), markdown.indexOf('## Acceptance'));
  for (const line of section.split('\n').filter((l) => l.startsWith('| `'))) {
    const [, keyCell, , defaultCell] = line.split(/(?<!\\)\|(?=(?:[^`]*`[^`]*`)*[^`]*$)/).map((c) => c.trim());
    const keys = keyNames(keyCell!);
    const texts = defaultTexts(defaultCell!, keys.length);
    for (const [i, key] of keys.entries()) found.set(key, defaultValue(texts[i]!));
  }
  return found;
}
function keyNames(cell: string): string[] {
  const names: string[] = [];
  for (const [, raw] of cell.matchAll(/`([^`]+)`/g)) {
    const name = raw!.replace(/\.(<server>|\*)$/, '');
    if (name === 'pattern') continue;
    const braces = /^(.*)\{([^}]+)\}$/.exec(name);
    if (braces) names.push(...braces[2]!.split(',').map((part) => braces[1]! + part.trim()));
    else if (name.startsWith('.')) names.push(names[0]!.slice(0, names[0]!.lastIndexOf('.')) + name);
    else names.push(name);
  }
  // "(all `pattern.*` also ...)" is a remark, not a key.
  return names.filter(unique);
}
function defaultTexts(cell: string, count: number): string[] {
  const parts = cell.includes(' / ') ? cell.split(' / ') : cell.split(/, (?=\w+(?:,|$))/);
  return parts.length === count ? parts : Array.from({ length: count }, () => cell);
}
function defaultValue(text: string): unknown {
  const bare = text.replaceAll('`', '').trim();
  if (/^null\b/.test(bare)) return null;
  if (/^\d\d §/.test(bare)) return undefined;
  if (bare === '{delegate: auto}') return { delegate: 'auto' };
  try {
    return JSON.parse(bare);
  } catch {
    return bare;
  }
}

describe('a renamed key', () => {
  const OLD = 'delegation.allow_dearer_fallback';
  const isAllowed = (rest: Partial<ConfigInput> = {}) => load(rest).delegation.allow_costlier_fallback;
  function warnings(rest: Partial<ConfigInput> = {}): readonly string[] {
    const loaded = loadConfig({ ...input, ...rest });
    return loaded.ok ? loaded.value.warnings : loaded.error;
  }

  it('is read by its old name from file, environment and flag', () => {
    expect([isAllowed(), warnings()]).toEqual([true, []]);
    expect(isAllowed({ env: { METIS_DELEGATION_ALLOW_DEARER_FALLBACK: 'false' } })).toBe(false);
    expect(isAllowed({ flags: { set: [`${OLD}=false`] } })).toBe(false);
    personal('delegation: { allow_dearer_fallback: false }\n');
    expect(isAllowed()).toBe(false);
  });

  it('gives one warning that names the new one', () => {
    personal('delegation: { allow_dearer_fallback: false }\n');
    const found = warnings({ flags: { set: [`${OLD}=true`] } });
    expect(found).toEqual([`--set: ${OLD} is now delegation.allow_costlier_fallback; use the new name`]);
    expect(warnings()[0]).toContain('server.yaml: ');
  });

  it('loses to its new name within one source, and wins over an earlier source', () => {
    personal('delegation: { allow_costlier_fallback: true, allow_dearer_fallback: false }\n');
    expect(isAllowed()).toBe(true);
    expect(isAllowed({ env: { METIS_DELEGATION_ALLOW_DEARER_FALLBACK: 'false' } })).toBe(false);
  });

  it('keeps its checks, and its problem names the new one', () => {
    personal('delegation: { allow_dearer_fallback: perhaps }\n');
    expect(problems().join()).toContain('delegation.allow_costlier_fallback: ');
  });
});
