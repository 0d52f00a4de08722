// `metis case`: a session saved as a regression test, and run again without its models (21 §3).
import fs from 'node:fs';
import path from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { parse, stringify } from 'yaml';
import { createMetisClient } from '#client/client.ts';
import { until } from '../support/until.ts';
import { git } from '../support/worktrees.ts';
import { runHere, type StartedHere, startHere } from './here.ts';
import { address, temporaryHome } from './metis.ts';

let home: ReturnType<typeof temporaryHome>;
const running: StartedHere[] = [];
const at = (...names: string[]) => path.join(home.path, ...names);

beforeEach(() => {
  home = temporaryHome();
  fs.mkdirSync(at('.metis'));
  fs.mkdirSync(at('ws'));
  fs.writeFileSync(at('ws', 'a.ts'), 'export const limit = 10;\n');
  fs.writeFileSync(at('ws', 'b.ts'), 'export const most = 20;\n');
});
afterEach(async () => {
  await Promise.all(running.splice(0).map((process) => process.stop()));
  home.remove();
});

const SECRET = 'sk-12345678901234567890';
const usage = { input_tokens: 1000, output_tokens: 50 };
const calls = (name: string, input: object) => ({ name, input });
const reads = (task: string, file: string) => [
  {
    match: { role: 'worker', user_contains: task, call: 1 },
    respond: { tool_calls: [calls('read_file', { path: file })], usage },
  },
  { match: { role: 'worker', user_contains: task, call: 2 }, respond: { text: `{{last_tool_result}}`, usage } },
];
const RULES = [
  {
    match: { role: 'planner', turn: 1, call: 1 },
    respond: {
      tool_calls: [
        calls('delegate', { tier: 'fast', task: 'look at a' }),
        calls('delegate', { tier: 'fast', task: 'look at b' }),
      ],
      usage,
    },
  },
  ...reads('look at a', 'a.ts'),
  ...reads('look at b', 'b.ts'),
  {
    match: { role: 'planner', turn: 1, call: 2 },
    respond: { tool_calls: [calls('write_file', { path: 'note.txt', content: 'both\n' })], usage },
  },
  { match: { role: 'planner', turn: 1, call: 3 }, respond: { text: 'Both are read.', usage } },
  { match: { role: 'planner', turn: 2 }, respond: { text: 'You are welcome.', usage } },
];

async function serve() {
  const capabilities = { max_context_tokens: 200_000, max_output_tokens: 32_000, supports_structured_output: true };
  const write = (name: string, content: object) => fs.writeFileSync(at('.metis', name), JSON.stringify(content));
  write('scenario.yaml', { version: 1, rules: RULES });
  write('registry.yaml', {
    adapters: { scripted: { type: 'scripted', scenario: 'scenario.yaml' } },
    models: Object.fromEntries(['deep', 'fast'].map((tier) => [`scripted:${tier}`, { tier, capabilities }])),
  });
  write('prices.json', {
    pricing_version: 'test',
    models: {
      'scripted:deep': { input_per_mtok_usd: '15', output_per_mtok_usd: '75' },
      'scripted:fast': { input_per_mtok_usd: '1', output_per_mtok_usd: '5' },
    },
  });
  write('server.yaml', {
    pricing: { tables: [at('.metis', 'prices.json')] },
    context: { base_system_prompt: 'You help with one small project.' },
  });
  const server = startHere(['serve', '--port', '0'], { home: home.path });
  running.push(server);
  return createMetisClient({ baseUrl: await address(server) });
}

/** Two turns with two workers and one approval. */
async function record(over: object = {}) {
  const client = await serve();
  const session = await client.createSession({ workspace_path: at('ws'), record_case: true, ...over });
  for (const content of ['look at both', `thank you, ${SECRET}`]) {
    const { turn_id } = await client.submitTurn(session.id, { content });
    await until(async () => {
      const { confirmations } = await client.listConfirmations({ session_id: session.id, status: 'pending' });
      for (const { confirmation_request_id: id } of confirmations)
        await client.answerConfirmation(id, { decision: 'approve' });
      return (await client.getTurn(session.id, turn_id)).ended_at !== null;
    }, 30_000);
    expect((await client.getTurn(session.id, turn_id)).status).toBe('completed');
  }
  return { client, session };
}
const metis = (...args: string[]) => runHere(args, { home: home.path });
const edit = (change: (file: Record<string, object | undefined>) => void) => {
  const file = parse(fs.readFileSync(at('case', 'case.yaml'), 'utf8'));
  change(file);
  fs.writeFileSync(at('case', 'case.yaml'), stringify(file));
};

/** Throws where the text is no well-formed XML with one root. */
function requireXml(text: string): void {
  const [declaration = '', ...rest] = text.split('?>');
  expect(declaration).toBe('<?xml version="1.0" encoding="UTF-8"');
  let left = rest.join('?>').trim();
  const open: string[] = [];
  let roots = 0;
  while (left !== '') {
    const tag =
      /^<(\/?)([A-Za-z]\w*)((?:\s+[A-Za-z]\w*="[^"<&]*(?:&(?:amp|lt|gt|quot|apos);[^"<&]*)*")*)\s*(\/?)>/.exec(left);
    if (tag !== null) {
      const [whole, closes, name = '', , alone] = tag;
      if (open.length === 0) roots += 1;
      if (closes === '/') expect(open.pop()).toBe(name);
      else if (alone !== '/') open.push(name);
      left = left.slice(whole.length);
    } else {
      const words = /^(?:[^<&]|&(?:amp|lt|gt|quot|apos);)+/.exec(left);
      if (words === null || (open.length === 0 && words[0].trim() !== ''))
        throw new Error(`no XML: ${left.slice(0, 80)}`);
      left = left.slice(words[0].length);
    }
  }
  expect([open, roots]).toEqual([[], 1]);
}

describe('a case', () => {
  // Promise 21.5: the case of a session with two workers, tools and an approval passes; a changed base prompt and a changed tool result are named; the JUnit file is valid.
  it('passes as it was recorded, and names the first request that differs', async () => {
    git(at('ws'), 'init', '-q', '-b', 'main');
    // Delegations are asked about, once for both.
    const { session } = await record({ confirm_above_workers: 1 });
    const saved = await metis('case', 'save', session.id, 'case', '--with-content');
    expect([saved.stderr, saved.code]).toEqual(['', 0]);
    expect(fs.readdirSync(home.path).filter((name) => name.includes('case'))).toEqual(['case']);
    expect(saved.stdout).toContain('turns 2, model calls 8');
    const stored = fs
      .readdirSync(at('case', 'calls'))
      .map((name) => fs.readFileSync(at('case', 'calls', name), 'utf8'));
    const written = [...stored, fs.readFileSync(at('case', 'case.yaml'), 'utf8')].join('');
    expect(written).not.toContain(home.path);
    expect(written).not.toContain(SECRET);
    expect(written).toContain('thank you, [REDACTED]');

    const passed = await metis('case', 'run', 'case', '--junit', 'report.xml');
    expect([passed.stdout, passed.stderr, passed.code]).toEqual([
      ['requests', 'approvals', 'tools', 'files', 'stop reason', 'cost'].map((name) => `ok    ${name}\n`).join(''),
      '',
      0,
    ]);
    requireXml(fs.readFileSync(at('report.xml'), 'utf8'));
    // Workers of one message begin in any order.
    edit(({ expect: recorded }) => {
      const { tools } = recorded as { tools: object };
      Object.assign(recorded!, { tools: Object.fromEntries(Object.entries(tools).reverse()) });
    });
    expect(await metis('case', 'run', 'case')).toMatchObject({ code: 0 });

    edit(({ settings }) => Object.assign(settings!, { 'context.base_system_prompt': 'You help with <two> & more.' }));
    const changed = await metis('case', 'run', 'case', '--junit', 'report.xml');
    expect(changed.code).toBe(1);
    expect(changed.stdout).toContain('call 1 of the planner differs at head.system_prompt');
    expect(changed.stdout).toContain('- You help with one small project.');
    expect(changed.stdout).toContain('+ You help with <two> & more.');
    const report = fs.readFileSync(at('report.xml'), 'utf8');
    requireXml(report);
    expect(report).toContain('<testsuite name="case" tests="6" failures="1"');
    edit((file) => Object.assign(file, { asserts: { max_cost_usd: '0.2', final_text_matches: '^You are' } }));
    expect((await metis('case', 'run', 'case')).stdout).toBe('ok    max_cost_usd\nok    final_text_matches\n');
    edit((file) => Object.assign(file, { asserts: { max_cost_usd: '0.01' } }));
    expect((await metis('case', 'run', 'case')).code).toBe(1);
    edit((file) => Object.assign(file, { asserts: undefined }));
    edit(({ settings }) =>
      Object.assign(settings!, { 'context.base_system_prompt': 'You help with one small project.' }),
    );

    edit(({ settings }) => Object.assign(settings!, { 'tool_confirmation.default.write': 'auto' }));
    const unasked = await metis('case', 'run', 'case');
    expect(unasked.stdout).toContain('write_file did not ask for the approval that the case has');
    edit(({ settings }) => Object.assign(settings!, { 'tool_confirmation.default.write': undefined }));

    fs.cpSync(at('ws'), at('other'), { recursive: true });
    fs.rmSync(at('other', 'note.txt'));
    fs.writeFileSync(at('other', 'b.ts'), 'export const most = 30;\n');
    const other = await metis('case', 'run', 'case', '--workspace', 'other');
    expect(other.code).toBe(1);
    expect(other.stdout).toMatch(/call 2 of a worker differs at messages\[2\]\.content\[0\]\.content\[0\]\.text/);
    expect(other.stdout).toContain('most = 20');
    expect(other.stdout).toContain('most = 30');
  });

  it('that is damaged or reaches outside its folder does not run, and its report names the fault', async () => {
    fs.mkdirSync(at('ws', 'app'));
    fs.symlinkSync(home.path, at('ws', 'out'));
    git(at('ws'), 'init', '-q', '-b', 'main');
    const { session } = await record();
    expect((await metis('case', 'save', session.id, 'case', '--with-content')).code).toBe(0);
    fs.cpSync(at('case'), at('saved'), { recursive: true });
    const runWith = async (damage: () => void) => {
      fs.rmSync(at('case'), { recursive: true });
      fs.cpSync(at('saved'), at('case'), { recursive: true });
      damage();
      const { code, stderr } = await metis('case', 'run', 'case', '--junit', 'report.xml');
      const report = fs.readFileSync(at('report.xml'), 'utf8');
      requireXml(report);
      expect([code, report.includes('tests="1" failures="0" errors="1"')]).toEqual([2, true]);
      return stderr;
    };
    const setPrefix = (prefix: string) => () => edit(({ start }) => Object.assign(start!, { prefix }));
    expect(await runWith(setPrefix('../../..'))).toContain('start.prefix: must lie in the snapshot');
    expect(await runWith(setPrefix('out'))).toContain('start.prefix: must lie in the snapshot');
    const first = ['case', 'calls', '00001.json'] as const;
    expect(
      await runWith(() => {
        fs.rmSync(at(...first));
        fs.symlinkSync('/dev/zero', at(...first));
      }),
    ).toContain('it is no plain file');
    expect(await runWith(() => fs.truncateSync(at(...first), 100))).toContain('00001.json is not valid JSON');
    expect(await runWith(() => fs.truncateSync(at('case', 'start.bundle'), 100))).toContain('cannot be unpacked');
    const bind = () => edit(({ settings }) => Object.assign(settings!, { 'server.host': '0.0.0.0' }));
    expect(await runWith(bind)).toContain('settings: only settings of turn');
    const nowhere = await metis('case', 'run', 'saved', '--junit', 'no/report.xml');
    expect([nowhere.code, nowhere.stderr]).toEqual([2, expect.stringContaining('no/report.xml cannot be written')]);
  });

  it('without a repository needs the workspace that it began with, and none other', async () => {
    const { session } = await record();
    fs.rmSync(at('ws', 'note.txt'));
    expect((await metis('case', 'save', session.id, 'case', '--with-content')).code).toBe(0);
    const missing = await metis('case', 'run', 'case');
    expect([missing.code, missing.stderr]).toEqual([
      2,
      'metis: the case holds no files; name a copy of its workspace with --workspace\n',
    ]);
    const passed = await metis('case', 'run', 'case', '--workspace', 'ws');
    expect([passed.stdout.includes('FAIL'), passed.code]).toEqual([false, 0]);
    expect(fs.existsSync(at('ws', 'note.txt'))).toBe(false);
    fs.writeFileSync(at('ws', 'b.ts'), 'changed\n');
    const changed = await metis('case', 'run', 'case', '--workspace', 'ws');
    expect([changed.code, changed.stderr]).toEqual([
      2,
      'metis: the workspace is not the one of the case: b.ts differs\n',
    ]);
  });

  // Promise 21.5: a session without a noted start cannot be saved.
  it('is refused without a noted start, and without consent to its content', async () => {
    const { session } = await record({ record_case: false });
    const refused = await metis('case', 'save', session.id, 'case', '--with-content');
    expect(refused.code).toBe(1);
    expect(refused.stderr).toContain('noted no start');
    const asked = await metis('case', 'save', session.id, 'case');
    expect(asked.code).toBe(1);
    expect(asked.stderr).toContain('--with-content');
    expect(fs.existsSync(at('case'))).toBe(false);
  });
});
