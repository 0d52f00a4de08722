// A session of one's own on a named worker: its model, its files, its attachments, its checked answer (13 §1, §5, §6.6, §8).
import fs from 'node:fs';
import path from 'node:path';
import { describe, expect, it } from 'vitest';
import { type Parsed, startServer } from '../../support/http.ts';
import { call, planner, scenario, worker } from '../../support/scenario.ts';

const REGISTRY = fs
  .readFileSync(path.join(import.meta.dirname, '../../support/registry.yaml'), 'utf8')
  .replace(
    'supports_thinking: true,',
    'supports_thinking: true,\n        accepted_document_media_types: [application/pdf],',
  );
const FILES = {
  'workers/lead.yaml':
    'instructions: You lead.\nmodel: opus\nallow_workers: [pdf]\noutput_schema_ref: answer\nsandboxes: { in: { path: decks } }\nattachment_policy: { max_attachments: 1 }\n',
  'workers/evaluator.yaml': 'instructions: You judge.\n',
  'workers/pdf.yaml': 'instructions: You judge.\nmodel: opus\n',
  'workers/broken.yaml': 'modle: x',
  'workers/tiered.yaml': 'instructions: x\ntier: fast',
  'schemas/answer.json': '{"type":"object","required":["n"],"properties":{"n":{"type":"integer"}}}',
  'decks/a.pdf': '%PDF-1.7 fake',
  'MEMORY.md': '',
  '.metis/MEMORY.md': 'remembered',
  'AGENTS.md': 'project rules',
};

describe('a session with a worker', () => {
  // Promise 13.32: a session on a worker has its model, its files and a checked output.
  it('is configured by its definition, calls whom it may, and ends with a checked object', async () => {
    const t = await startServer({
      registry: REGISTRY,
      files: FILES,
      scenario: scenario(
        planner(
          { tool_calls: [call('pdf', { input: 'judge', attachments: ['in/a.pdf'] }), call('list_files', {})] },
          { text: '{"n": 3}' },
        ),
        worker('judge', { text: 'fine' }),
        [{ match: { role: 'planner', turn: 2 }, respond: { text: 'three' } }],
      ),
    });
    const opened = await t.call('POST', '/sessions', { workspace_path: t.workspace, worker: 'lead' });
    expect(opened).toMatchObject({
      status: 201,
      body: {
        active_model: 'anthropic:claude-opus-4-7',
        worker_name: 'lead',
        worker_origin: 'project',
        is_worker: false,
        delegation_depth: 0,
      },
    });
    const turn = await t.run(opened.body, 'go');
    expect(turn.status).toBe('completed');
    const [first, second] = t.adapter.requests;
    expect(first!.system_prompt).toMatch(/^You lead\.\n\n## Folders/);
    expect(first!.system_prompt).not.toMatch(/project rules|Worker mode/);
    expect(first!.system_prompt_volatile).toBeNull();
    expect(first!.tools.map(({ name }) => name)).toEqual(['grep', 'list_files', 'pdf', 'read_file']);
    expect(first!.output_schema).toMatchObject({ required: ['n'] });
    expect(second!.messages[0]!.content.map((b) => b.type)).toEqual(['text', 'document']);
    const url = `/sessions/${opened.body.id}/turns`;
    expect((await t.call('GET', `${url}/${turn.id}`)).body.output).toEqual({ n: 3 });
    const route = t.events.find((e) => e.type === 'route.decided')!.payload as Parsed;
    expect(route.chain[1]).toMatchObject({ policy: 'manual_sticky', verdict: 'chose' });
    await t.run(opened.body, 'again');
    expect((await t.call('GET', url)).body.turns.map((r: Parsed) => r.output)).toEqual(['three', { n: 3 }]);
  });

  // Promise 13.32: an unknown or invalid worker opens no session.
  it('that is not there, not valid, or beside a list of workers is refused; a tier gives its model', async () => {
    const t = await startServer({ registry: REGISTRY, files: FILES });
    const open = (body: object) => t.call('POST', '/sessions', { workspace_path: t.workspace, ...body });
    expect((await open({ worker: 'ghost' })).body.error).toMatchObject({
      code: 'not_found',
      details: { resource: 'worker' },
    });
    expect((await open({ worker: 'broken' })).body.error).toMatchObject({
      code: 'validation_error',
      message: 'worker.modle: unknown key (workers/broken.yaml:1)',
      details: { issues: [{ path: 'worker.modle' }] },
    });
    expect((await open({ worker: 'lead', allow_workers: [] })).body.error.code).toBe('validation_error');
    expect((await open({ worker: 'tiered' })).body.active_model).toBe('anthropic:claude-haiku-4-5');
    expect((await open({ worker: 'tiered', initial_active_model: 'opus' })).body.active_model).toBe(
      'anthropic:claude-opus-4-7',
    );
    expect((await open({ worker: 'evaluator' })).body.active_model).toBeNull();
    fs.rmSync(path.join(t.workspace, 'decks'), { recursive: true });
    expect((await open({ worker: 'lead' })).body.error.message).toMatch(/sandbox_unavailable/);
    expect(t.rows().sessions).toBe(3);
  });
});

describe('a planner with a list of its own', () => {
  it('may call these workers whatever the configuration says', async () => {
    const t = await startServer({
      registry: REGISTRY,
      files: FILES,
      scenario: scenario([{ match: {}, times: 'inf', respond: { text: 'ok' } }]),
    });
    const one = (
      await t.call('POST', '/sessions', { workspace_path: t.workspace, allow_workers: ['evaluator', 'later'] })
    ).body;
    await t.run(one, 'go');
    fs.writeFileSync(path.join(t.workspace, 'workers/later.yaml'), 'instructions: x');
    await t.run(one, 'go');
    const offered = t.adapter.requests.map((r) =>
      r.tools.map(({ name }) => name).filter((n) => ['evaluator', 'later', 'lead'].includes(n)),
    );
    expect(offered).toEqual([['evaluator'], ['evaluator', 'later']]);
  });
});

describe('files of a message', () => {
  // Promise 13.38: files of a message reach the worker, within its policy and in its sessions alone.
  it('reach the worker; over its policy, outside, or in another session they are refused and nothing is stored', async () => {
    const t = await startServer({
      registry: REGISTRY,
      files: FILES,
      scenario: scenario([{ match: {}, times: 'inf', respond: { text: 'ok' } }]),
    });
    const lead = (await t.call('POST', '/sessions', { workspace_path: t.workspace, worker: 'lead' })).body;
    const submit = (id: string, attachments: string[]) =>
      t.call('POST', `/sessions/${id}/turns`, { content: 'look', attachments }, { prefer: 'wait=60' });
    expect(await submit(lead.id, ['decks/a.pdf'])).toMatchObject({ status: 200, body: { status: 'completed' } });
    expect(t.adapter.requests[0]!.messages[0]!.content).toMatchObject([
      { type: 'text', text: 'look' },
      { type: 'document', media_type: 'application/pdf', name: 'workspace/decks/a.pdf' },
    ]);
    const estimate = async (attachments: string[]) =>
      (await t.call('POST', `/sessions/${lead.id}/estimate`, { content: 'look', attachments })).body;
    expect((await estimate(['AGENTS.md'])).estimated_input_tokens).toBeGreaterThan(
      (await estimate([])).estimated_input_tokens,
    );
    const before = t.rows();
    const many = await submit(lead.id, ['decks/a.pdf', 'AGENTS.md']);
    expect(many).toMatchObject({ status: 400, body: { error: { code: 'validation_error' } } });
    expect(many.body.error.message).toContain("the attachment policy of 'lead' takes 1 (max_attachments)");
    const own = await submit(lead.id, ['in/a.pdf']);
    expect(own.body.error.message).toBe(
      "attachments: file not found: workspace/in/a.pdf; paths are of the workspace here, not of the worker's sandboxes",
    );
    expect((await submit(lead.id, ['../x'])).status).toBe(400);
    const steered = { content: 'look', attachments: ['AGENTS.md'], if_busy: 'steer' };
    expect((await t.call('POST', `/sessions/${lead.id}/turns`, steered)).body.error.message).toBe(
      'attachments: cannot steer a turn',
    );
    const plain = await t.session();
    expect((await submit(plain.id, ['AGENTS.md'])).body.error.message).toMatch(
      /^attachments: belong to a session with a worker/,
    );
    expect(t.rows()).toMatchObject({ messages: before.messages, turns: before.turns });
  });
});
