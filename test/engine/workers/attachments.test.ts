// Files handed to a worker: policies, consent file by file, and the bytes that were approved (13 §5).
import { execFileSync } from 'node:child_process';
import fs from 'node:fs';
import path from 'node:path';
import { describe, expect, it } from 'vitest';
import { type Parsed, startServer, type TestServer } from '../../support/http.ts';
import { call, planner, scenario, worker } from '../../support/scenario.ts';

const PDF = '%PDF-1.7\nfake';
const PNG = Buffer.from(
  'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==',
  'base64',
);
const config = { workers: { planner_allow_workers: ['*'], allow_approve_all: true } as never };
const REGISTRY = fs
  .readFileSync(path.join(import.meta.dirname, '../../support/registry.yaml'), 'utf8')
  .replace(
    'supports_thinking: true,',
    'supports_thinking: true,\n        accepted_document_media_types: [application/pdf],',
  );
const of = (t: TestServer, type: string) => t.events.filter((e) => e.type === type).map((e) => e.payload as Parsed);
const worked = (t: TestServer) => t.adapter.requests.find((r) => r.caller.is_worker);
/** A planner that hands these files to `w`. */
const handing = (definition: string, attachments: readonly string[], files: Record<string, string> = {}) => ({
  config,
  registry: REGISTRY,
  files: { 'workers/w.yaml': `instructions: x\nmodel: opus\n${definition}`, ...files },
  scenario: scenario(
    planner({ tool_calls: [call('w', { input: 'task', attachments })] }, { text: 'end' }),
    worker('task', { text: 'ok' }),
  ),
});
const refused = async (options: ReturnType<typeof handing>) => {
  const t = await startServer(options);
  await t.run(await t.session(), 'go');
  expect(t.rows()).toMatchObject({ sessions: 1, delegations: 0 });
  expect(of(t, 'tool.called')).toEqual([]);
  expect(of(t, 'delegate.started')).toEqual([]);
  const [failed] = of(t, 'tool.failed');
  return `${failed.error_class} ${failed.error_message}`;
};

describe('attachments', () => {
  it('stand behind the input, one block each in order: text, PDF, image; stored with hash and size', async () => {
    const t = await startServer(
      handing('', ['a.md', 'workspace/deck.pdf', 'p.png'], { 'a.md': '# hi', 'deck.pdf': PDF }),
    );
    fs.writeFileSync(path.join(t.workspace, 'p.png'), PNG);
    const session = await t.session();
    await t.run(session, 'go');
    expect(worked(t)!.messages[0]!.content).toEqual([
      { type: 'text', text: 'task' },
      { type: 'text', text: 'Attachment workspace/a.md:\n# hi' },
      {
        type: 'document',
        source: { kind: 'base64', data: Buffer.from(PDF).toString('base64') },
        media_type: 'application/pdf',
        name: 'workspace/deck.pdf',
      },
      { type: 'image', source: { kind: 'base64', data: PNG.toString('base64') }, media_type: 'image/png' },
    ]);
    expect(of(t, 'delegate.started')).toMatchObject([
      { attachment_count: 3, attachment_total_bytes: 4 + PDF.length + PNG.length },
    ]);
    const { request_json } = t.db.db.prepare('SELECT request_json FROM delegations').get() as { request_json: string };
    expect(JSON.parse(request_json).attachments[1]).toEqual({
      path: 'workspace/deck.pdf',
      file: 'deck.pdf',
      bytes: PDF.length,
      media_type: 'application/pdf',
      sha256: expect.stringMatching(/^[0-9a-f]{64}$/),
    });
  });

  // Promise 13.17: a model that cannot serve falls through the chain.
  it('a PDF takes a model that reads none out of the choice', async () => {
    const t = await startServer(handing('', ['deck.pdf'], { 'deck.pdf': PDF }));
    fs.writeFileSync(path.join(t.workspace, 'workers/w.yaml'), 'instructions: x\nmodel: haiku\n');
    await t.run(await t.session(), 'go');
    const route = t.events.filter((e) => e.type === 'route.decided').at(-1)!.payload as Parsed;
    expect(route.chain[4]).toMatchObject({ verdict: 'rejected', validation_failure: 'no_document_support' });
  });

  // Promise 14.11: A call with a PDF leaves only where its limit holds the price of the window.
  it.each([
    ['2.999', 'budget_exceeded', 0],
    ['3.5', null, 1],
  ])('under a limit reserves the price of the window of its model for a PDF: of %s', async (limit, failed, calls) => {
    const t = await startServer(handing('', ['deck.pdf'], { 'deck.pdf': PDF }));
    await t.run(await t.session({ initial_active_model: 'sonnet', max_cost_usd: limit, on_reached: 'stop' }), 'go');
    // 200,000 tokens at 15 USD per million.
    expect(of(t, 'delegate.failed').map((p) => p.failure_mode)).toEqual(failed === null ? [] : [failed]);
    expect(t.adapter.requests.filter((r) => r.caller.is_worker)).toHaveLength(calls);
  });

  // Promise 14.12: A call with images leaves only where its limit holds what its model bills for each at most.
  it.each([
    // At 15 USD per million, and 0.31 for the answer.
    ['max_image_tokens: 100000, ', '1.7', 'budget_exceeded', 0],
    ['max_image_tokens: 100000, ', '1.9', null, 1],
    ['', '0.52', 'budget_exceeded', 0],
    ['', '0.6', null, 1],
  ])('under a limit reserves what its model bills for an image: {%s}, of %s', async (says, limit, failed, calls) => {
    const registry = REGISTRY.replace('max_context_tokens', `${says}max_context_tokens`);
    const t = await startServer({ ...handing('', ['p.png']), registry });
    fs.writeFileSync(path.join(t.workspace, 'p.png'), PNG);
    await t.run(await t.session({ initial_active_model: 'sonnet', max_cost_usd: limit, on_reached: 'stop' }), 'go');
    expect(of(t, 'delegate.failed').map((p) => p.failure_mode)).toEqual(failed === null ? [] : [failed]);
    expect(t.adapter.requests.filter((r) => r.caller.is_worker)).toHaveLength(calls);
  });

  // Promise 13.12: too many, too large, denied suffixes, and a stricter caller: the error names whose policy, and there is no session.
  // Promise 13.42: thousands of names are refused before any is looked up.
  it.each([
    [
      'five of four',
      '',
      ['1.md', '2.md', '3.md', '4.md', '5.md'],
      "validation_error 5 attachments, the attachment policy of 'w' takes 4 (max_attachments)",
    ],
    [
      'one byte too many',
      'attachment_policy: { max_total_bytes: 5 }',
      ['1.md', '2.md'],
      "validation_error more than 5 bytes of attachments, the attachment policy of 'w' takes no more (max_total_bytes)",
    ],
    [
      'a denied suffix that is allowed too',
      'attachment_policy: { allowed_suffixes: [.md], denied_suffixes: [.MD] }',
      ['1.md'],
      "validation_error workspace/1.md: the attachment policy of 'w' refuses its suffix (denied_suffixes)",
    ],
    [
      'another suffix',
      'attachment_policy: { allowed_suffixes: [.pdf] }',
      ['1.md'],
      "validation_error workspace/1.md: the attachment policy of 'w' takes .pdf only (allowed_suffixes)",
    ],
    [
      'more names than anybody looks up',
      '',
      Array.from({ length: 9000 }, (_, i) => `../${i}`),
      "validation_error 9000 attachments, the attachment policy of 'w' takes 4 (max_attachments)",
    ],
    ['the same file twice', '', ['1.md', './1.md'], 'validation_error workspace/1.md: is attached twice'],
    ['a file that is not there', '', ['none.md'], 'execution_error file not found: workspace/none.md'],
    ['a folder', '', ['workers'], 'execution_error not a regular file: workspace/workers'],
    ['a file outside', '', ['../x.md'], "permission_denied path_escape: '../x.md' is not below workspace"],
    ['an absolute path', '', ['/etc/passwd'], "permission_denied path_escape: '[REDACTED]' is not below workspace"],
    ['the keys of the workspace', '', ['.metis/trust.yaml'], "permission_denied Path '.metis/trust.yaml' is protected"],
    [
      'a PDF that is none',
      '',
      ['no.pdf'],
      'validation_error unsupported_attachment_type: workspace/no.pdf is no PDF document',
    ],
    [
      'a picture that is none',
      '',
      ['no.png'],
      'validation_error unsupported_attachment_type: workspace/no.png: data is not a PNG, JPEG, GIF or WebP image',
    ],
  ])('%s are refused: no session, and the error says why', async (_, definition, attachments, error) => {
    const files = Object.fromEntries([1, 2, 3, 4, 5].map((n) => [`${n}.md`, 'abc']));
    const more = { 'no.pdf': 'text', 'no.png': 'text', '.metis/trust.yaml': 'schema_version: 1' };
    const options = handing(definition, attachments, { ...files, ...more });
    expect(await refused(options)).toBe(error);
  });

  // Promise 13.42: pipes, devices and endless files are refused without reading on.
  it.each([
    ['a FIFO', 'execution_error not a regular file: workspace/odd', ''],
    ['a link to a device', "permission_denied path_escape: 'odd' is not below workspace", ''],
    ['a link into /proc', "permission_denied path_escape: 'odd' is not below workspace", ''],
    [
      'ten sparse gigabytes',
      "validation_error more than 10000000 bytes of attachments, the attachment policy of 'w' takes no more (max_total_bytes)",
      '',
    ],
    [
      'ten sparse gigabytes for a policy without bounds',
      'validation_error more than 33554432 bytes of attachments, no call takes more',
      'attachment_policy: { max_total_bytes: 1000000000000 }',
    ],
  ])('that are %s are refused without reading on', async (what, error, definition) => {
    const t = await startServer(handing(definition, ['odd']));
    const odd = path.join(t.workspace, 'odd');
    if (what === 'a FIFO') execFileSync('mkfifo', [odd]);
    else if (what === 'a link to a device') fs.symlinkSync('/dev/zero', odd);
    else if (what === 'a link into /proc') fs.symlinkSync('/proc/self/environ', odd);
    else {
      fs.writeFileSync(odd, '');
      fs.truncateSync(odd, 10 * 2 ** 30);
    }
    await t.run(await t.session(), 'go');
    expect(t.rows()).toMatchObject({ sessions: 1, delegations: 0 });
    expect(of(t, 'tool.failed').map((p) => `${p.error_class} ${p.error_message}`)).toEqual([error]);
  });

  it('bytes that are no text, no picture and no PDF are refused', async () => {
    const options = handing('', ['blob']);
    const t = await startServer(options);
    fs.writeFileSync(path.join(t.workspace, 'blob'), Buffer.from([0xff, 0xfe, 0x80]));
    await t.run(await t.session(), 'go');
    expect(of(t, 'tool.failed')[0].error_message).toMatch(/^unsupported_attachment_type: workspace\/blob is neither/);
  });

  // Promise 13.12: the caller's own policy counts where it is written.
  it('of a worker come from its own sandboxes, under its own policy too', async () => {
    const t = await startServer({
      config,
      files: {
        'workers/lead.yaml':
          'instructions: x\nallow_workers: [w]\nsandboxes: { in: { path: data, allowed_suffixes: [.md] } }\nattachment_policy: { max_attachments: 1 }\n',
        'workers/w.yaml': 'instructions: x\nattachment_policy: { max_attachments: 3 }',
        'data/a.md': 'A',
        'data/b.md': 'B',
        'data/c.exe': 'C',
        'secret.md': 'S',
      },
      scenario: scenario(
        planner({ tool_calls: [call('lead', { input: 'lead' })] }, { text: 'end' }),
        worker(
          'lead',
          {
            tool_calls: [['in/a.md', 'in/b.md'], ['secret.md'], ['in/c.exe'], ['in/a.md']].map((attachments) =>
              call('w', { input: 'judge', attachments }),
            ),
          },
          { text: 'up' },
        ),
        worker('judge', { text: 'ok' }),
      ),
    });
    await t.run(await t.session(), 'go');
    expect(
      of(t, 'tool.failed')
        .map((p) => p.error_message)
        .sort(),
    ).toEqual([
      "2 attachments, the attachment policy of the caller 'lead' takes 1 (max_attachments)",
      "suffix_not_allowed: 'in' holds .md",
      "unknown_sandbox: 'secret.md' must begin with in",
    ]);
    expect(t.adapter.requests.filter((r) => JSON.stringify(r.messages).includes('Attachment in/a.md'))).toHaveLength(1);
  });
});

describe('consent to share', () => {
  const asks = {
    ...config,
    tool_confirmation: { per_tool: { 'sandbox.read': 'prompt', 'worker.call': 'auto' } } as never,
  };
  const files = { 'a.md': 'approved', 'b.md': 'other' };

  // Promise 13.13: each file is asked about in order, and the approved bytes are what is sent.
  it('is asked file by file, in order; what was approved is what is sent, whatever becomes of the file', async () => {
    const t = await startServer({ ...handing('', ['a.md', 'b.md'], files), config: asks });
    const turn = await t.submit(await t.session(), 'go');
    const first = (await t.event('tool.confirmation_requested')).payload as Parsed;
    expect(first).toMatchObject({
      rule: 'sandbox.read',
      modifiable: false,
      allowed_scopes: ['once', 'identical'],
      payload: { path: 'workspace/a.md', bytes: 8, target_worker: 'w' },
    });
    fs.writeFileSync(path.join(t.workspace, 'a.md'), 'swapped!');
    const edit = { decision: 'modify', modified_input: {} };
    expect((await t.call('POST', `/confirmations/${first.confirmation_request_id}`, edit)).body.error.code).toBe(
      'not_modifiable',
    );
    await t.call('POST', `/confirmations/${first.confirmation_request_id}`, { decision: 'approve' });
    const second = (
      await t.event('tool.confirmation_requested', (e) => (e.payload as Parsed).payload.path.endsWith('b.md'))
    ).payload as Parsed;
    expect(second.confirmation_request_id).not.toBe(first.confirmation_request_id);
    await t.call('POST', `/confirmations/${second.confirmation_request_id}`, { decision: 'approve' });
    await t.ended(turn);
    expect(of(t, 'tool.confirmation_requested')).toHaveLength(2);
    expect(worked(t)!.messages[0]!.content[1]).toEqual({ type: 'text', text: 'Attachment workspace/a.md:\napproved' });
  });

  // Promise 13.13: refusing one file refuses the call: no session.
  it('refused for one is refused for all: no session', async () => {
    const t = await startServer({ ...handing('', ['a.md', 'b.md'], files), config: asks });
    const turn = await t.submit(await t.session(), 'go');
    let n = 0;
    const nth = async (k: number) => {
      n = 0;
      return (await t.event('tool.confirmation_requested', () => ++n === k)).payload as Parsed;
    };
    await t.call('POST', `/confirmations/${(await nth(1)).confirmation_request_id}`, { decision: 'approve' });
    await t.call('POST', `/confirmations/${(await nth(2)).confirmation_request_id}`, { decision: 'reject' });
    await t.ended(turn);
    expect(of(t, 'tool.failed')).toMatchObject([{ error_class: 'user_denied' }]);
    expect(t.rows()).toMatchObject({ sessions: 1, delegations: 0 });
  });

  // Promise 13.14: free calls and asked files ask about the files alone.
  it('by a rule of the caller asks for the file alone where calls are free, and not at all where it says so', async () => {
    const lead = (rule: string) => ({
      config,
      files: {
        'workers/lead.yaml': `instructions: x\nallow_workers: [w]\nsandboxes: { in: { path: data } }\ntool_rules: { worker.call: { approval_required: false }, sandbox.read: { approval_required: ${rule} } }\n`,
        'workers/w.yaml': 'instructions: x',
        'data/a.md': 'A',
      },
      scenario: scenario(
        planner({ tool_calls: [call('lead', { input: 'lead' })] }, { text: 'end' }),
        worker('lead', { tool_calls: [call('w', { input: 'judge', attachments: ['in/a.md'] })] }, { text: 'up' }),
        worker('judge', { text: 'ok' }),
      ),
    });
    const asking = await startServer(lead('true'));
    const turn = await asking.submit(await asking.session(), 'go');
    const asked = (await asking.event('tool.confirmation_requested')).payload as Parsed;
    expect(asked).toMatchObject({ rule: 'sandbox.read', worker_name: 'lead' });
    await asking.call('POST', `/confirmations/${asked.confirmation_request_id}`, { decision: 'approve' });
    await asking.ended(turn);
    expect(of(asking, 'tool.confirmation_requested')).toHaveLength(1);
    expect(of(asking, 'delegate.completed')).toHaveLength(2);
    const free = await startServer(lead('false'));
    await free.run(await free.session({ approval_mode: 'strict' }), 'go');
    expect(of(free, 'delegate.completed')).toHaveLength(2);
  });
});
