// The example of named workers: as the demo plays it, and its definitions unchanged over both real wires (17 §1, 13).
import { execFileSync } from 'node:child_process';
import fs from 'node:fs';
import path from 'node:path';
import { describe, expect, test } from 'vitest';
import { run, temporaryHome } from '../../app/metis.ts';
import { tempFolder } from '../../support/engine.ts';
import type { FakeCall } from '../../support/fake-provider.ts';
import type { Parsed } from '../../support/http.ts';
import { ROOT, startReal, startStrictFake } from '../../support/real-server.ts';
import { registryAt, WIRES } from '../../support/registry-at.ts';

const DECKS = ['aurora', 'birchwood', 'corvid'];
const EXAMPLE = path.join(ROOT, 'examples/pitchdeck-eval');
const scores = (deck: string) => ({ deck: `${deck}.pdf`, problem: 5, traction: 5, team: 5, verdict: 'Fair.' });
/** The answer of a worker; the lines behind it are the server's. */
const readScores = (result: string) => result.split('\n', 1)[0]!;

test('the decks are what their script writes, byte for byte', () => {
  const made = tempFolder();
  execFileSync(process.execPath, [path.join(ROOT, 'scripts/gen-decks.mjs'), made]);
  const shipped = path.join(EXAMPLE, 'pipeline');
  expect(fs.readdirSync(made)).toEqual(fs.readdirSync(shipped));
  for (const name of fs.readdirSync(made))
    expect(fs.readFileSync(path.join(made, name)).equals(fs.readFileSync(path.join(shipped, name))), name).toBe(true);
});

describe.each(WIRES)('the definitions of the example over the %s wire', (wire) => {
  // Promise 05.4: a worker's name lists its sessions alone, planner or not.
  // Promise 17.10: the same definitions run over both wires.
  test('list, evaluate and write: each deck reaches its evaluator as a document, the answers come back checked', async () => {
    const folder = tempFolder();
    const workspace = path.join(folder, 'decks');
    fs.cpSync(EXAMPLE, workspace, { recursive: true });
    const file = (name: string, content: string) => ({
      name: 'write_file',
      input: { path: `output/${name}`, content },
    });
    const answer = (call: FakeCall) => {
      const deck = DECKS.find((name) => call.user.includes(`Evaluate ${name}.pdf`));
      if (deck !== undefined) return { text: JSON.stringify(scores(deck)) };
      const spoken = (call.body.messages as Parsed[]).filter((m) => m.role === 'assistant').length;
      if (spoken === 0) return { tool_calls: [{ name: 'list_files', input: { path: 'input' } }] };
      if (spoken === 1) {
        const found = call.results[0]!.split('\n').map((name) => name.replace('.pdf', ''));
        const calls = found.map((name) => ({
          name: 'evaluator',
          input: { input: `Evaluate ${name}.pdf.`, attachments: [`input/${name}.pdf`] },
        }));
        return { tool_calls: calls };
      }
      if (spoken === 2)
        return {
          tool_calls: call.results.map((text) => {
            const scored = readScores(text);
            return file(JSON.parse(scored).deck.replace('.pdf', '.json'), scored);
          }),
        };
      return { text: 'All equal.' };
    };
    const fake = await startStrictFake(async (call) => answer(call));
    const registry = registryAt(fake).replaceAll(
      'accepted_image_media_types: [image/png, image/jpeg]',
      'accepted_image_media_types: [image/png, image/jpeg], accepted_document_media_types: [application/pdf]',
    );
    const server = await startReal({
      folder: path.join(folder, 'data'),
      registry: registry
        .replace('tier: deep', 'tier: balanced')
        .replace('gpt-5: { tier: deep', 'gpt-5: { tier: balanced'),
      wires: [wire],
      config: { workers: { allow_approve_all: true } as never },
    });
    const opened = await server.call('POST', '/sessions', {
      workspace_path: workspace,
      worker: 'orchestrator',
      approval_mode: 'approve_all',
    });
    expect(opened.status).toBe(201);
    const turn = await server.turn(opened.body.id, 'Evaluate all decks of the pipeline.');
    expect(turn.error_message).toBeNull();
    expect(turn).toMatchObject({ status: 'completed', output: 'All equal.' });
    for (const deck of DECKS)
      expect(JSON.parse(fs.readFileSync(path.join(workspace, `evaluations/${deck}.json`), 'utf8'))).toEqual(
        scores(deck),
      );
    const started = server.events.filter((e) => e.type === 'delegate.started').map((e) => e.payload);
    expect(started).toHaveLength(3);
    for (const payload of started)
      expect(payload).toMatchObject({ entry: 'worker_tool', worker_name: 'evaluator', attachment_count: 1 });
    const judging = fake.calls.filter((call) => call.user.includes('Evaluate'));
    const bytes = (deck: string) => fs.readFileSync(path.join(EXAMPLE, `pipeline/${deck}.pdf`)).toString('base64');
    for (const call of judging.filter((c) => DECKS.some((deck) => c.user.includes(`${deck}.pdf.`)))) {
      const deck = DECKS.find((name) => call.user.includes(name))!;
      expect(call.text).toContain(bytes(deck));
      for (const other of DECKS) if (other !== deck) expect(call.text).not.toContain(bytes(other));
      expect(call.system).toContain('traction: what has been sold');
      expect(call.tools).toEqual(['_request_context']);
    }
    const cost = (await server.call('GET', '/analytics/cost?group_by=worker_name&from=all')).body;
    expect(cost.data.map((row: Parsed) => [row.worker_name, row.call_count]).sort()).toEqual([
      ['evaluator', 3],
      ['orchestrator', 4],
    ]);
    const named = async (worker_name: string) => (await server.client.listSessions({ worker_name })).sessions;
    expect((await named('evaluator')).map((s) => s.id).sort()).toEqual(
      started.map((payload) => payload.worker_session_id).sort(),
    );
    expect((await named('orchestrator')).map((s) => s.id)).toEqual([opened.body.id]);
    expect(await named('nobody')).toEqual([]);
    expect((await server.call('GET', '/sessions?worker_name=a%20b')).status).toBe(400);
  });
});

describe('metis demo --workers', () => {
  // Promise 17.10: the demo of named workers runs without a key and shows its cost.
  test('needs no key: it judges three decks, shows it, and says what it cost', async () => {
    const home = temporaryHome();
    try {
      const { code, stdout } = await run(['demo', '--workers'], { home: home.path });
      expect(code).toBe(0);
      expect(stdout).toContain('aurora (23 of 30): sold and kept in 41 buildings.');
      expect(stdout.match(/^evaluator \d +done$/gm)).toHaveLength(3);
      for (const deck of DECKS)
        expect(stdout).toMatch(new RegExp(`^wrote evaluations/${deck}\\.json, \\d+ bytes$`, 'm'));
      // Nobody is asked, so nothing is told of approvals.
      for (const line of stdout.split('\n')) expect(line.length).toBeLessThanOrEqual(80);
      const sums = stdout.split(/^─+$/m).at(-1)!;
      expect(sums).toMatch(/^orchestrator +4 .*\$[\d.]+$/m);
      expect(sums).toMatch(/^evaluator +3 .*\$[\d.]+$/m);
      expect(stdout).toMatch(/^Saved by delegating, at example prices: \$/m);
      expect(fs.existsSync(path.join(EXAMPLE, 'evaluations'))).toBe(false);
    } finally {
      home.remove();
    }
  });
});
