// `metis routing what-if` against a real server, for the turns that it ran (21 §2).
import fs from 'node:fs';
import path from 'node:path';
import { expect, it } from 'vitest';
import { doorHome, serveIn, usage } from '../support/doors.ts';
import { runHere } from './here.ts';

const DEEP = 'scripted:deep';
const FAST = 'scripted:fast';

// Promise 21.2: the command shows both bounds, and exits 1 where the other bill is higher even at its lowest.
it('prints what changes with its range, and exits by whether it would have cost more', async () => {
  const home = doorHome([{ match: {}, times: 'inf', respond: { text: 'ok', usage } }]);
  const { url, client } = await serveIn(home);
  const file = (name: string, text: string) => {
    fs.writeFileSync(path.join(home.workspace, name), text);
    return path.join(home.workspace, name);
  };
  const ask = (...args: string[]) => runHere(['routing', 'what-if', '--server', url, ...args], { home: home.path });
  const session = await client.createSession({ workspace_path: home.workspace });
  const { chosen_model: chosen } = await client.explainRoute({ text: 'go', workspace_path: home.workspace });
  for await (const _ of client.turn(session.id, { content: 'go' }));

  const cheap = await ask(
    file('cheap.yaml', 'rules: [{ name: all, when: { is_worker: false }, use: "scripted:fast" }]'),
  );
  expect(cheap.code, cheap.stderr).toBe(0);
  const [header, , row, , total] = cheap.stdout.split('\n').map((line) => line.trim().split(/ {2,}/));
  expect(header).toEqual(['model', 'instead', 'rule', 'decisions', 'spent', 'low', 'high']);
  const report = await client.askWhatIf({ models: { [chosen]: FAST } });
  const { actual_usd, hypothetical_usd } = report;
  const sums = [actual_usd, hypothetical_usd.low, hypothetical_usd.high].map((usd) => `$${usd}`);
  expect(row).toEqual([chosen, FAST, 'all', '1', ...sums]);
  expect(total).toEqual(['total', '1', ...sums]);
  expect(cheap.stdout).toContain('1 of 1 decisions change. Basis: recorded tokens');

  const dear = await ask('--model', `${chosen}=${DEEP}`, '--json');
  expect(dear.code).toBe(1);
  expect(JSON.parse(dear.stdout).changed).toMatchObject([{ to_model: DEEP }]);
  for (const models of [
    ['--model', 'deep'],
    ['--model', 'deep=fast', '--model', 'deep=balanced'],
  ])
    expect(await ask(...models)).toMatchObject({ code: 1, stderr: expect.stringContaining('MODEL=MODEL') });
  expect(await ask()).toMatchObject({ code: 1, stderr: expect.stringContaining('at least one of') });
  expect(await ask('none.yaml')).toMatchObject({ code: 1, stderr: expect.stringContaining('no such file') });
});

// What the registry marks as superseded (22 §5).
it('prints with metis routing check what a newer model would have cost', async () => {
  const home = doorHome([{ match: {}, times: 'inf', respond: { text: 'ok', usage } }]);
  const registry = path.join(home.data, 'registry.yaml');
  const { models, ...rest } = JSON.parse(fs.readFileSync(registry, 'utf8'));
  models[DEEP].superseded_by = FAST;
  fs.writeFileSync(registry, JSON.stringify({ ...rest, models }));
  const { url, client } = await serveIn(home);
  const session = await client.createSession({ workspace_path: home.workspace, initial_active_model: DEEP });
  for await (const _ of client.turn(session.id, { content: 'go' }));
  const { actual_usd, hypothetical_usd } = await client.askWhatIf({ models: { [DEEP]: FAST } });
  const file = path.join(home.path, 'rules.yaml');
  fs.writeFileSync(file, 'schema_version: 1\n');
  const { code, stdout } = await runHere(['routing', 'check', file, '--server', url], { home: home.path });
  expect(code).toBe(0);
  expect(stdout).toContain(
    `newer    ${DEEP} cost $${actual_usd} in 30 days; its successor ${FAST} would have cost $${hypothetical_usd.low} to $${hypothetical_usd.high}`,
  );
});
