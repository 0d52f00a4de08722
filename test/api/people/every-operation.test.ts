// Every operation of the document that takes an id, or answers anything of sessions, as another member calls it (23 §1).
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { DIMENSIONS, VERIFIED_GROUPS } from '#protocol/analytics.ts';
import { type DocumentedOperation, operations } from '../../support/contract.ts';
import type { Answer, Parsed } from '../../support/http.ts';
import { call, delegate, planner, scenario, worker } from '../../support/scenario.ts';
import { type People, startPeople } from './world.ts';

const MARK = 'marked-7f3a';
const NOBODY = '01ARZ3NDEKTSV4RRFFQ69G5FAV';

/** Ids of what is hidden, and ids of nothing in the same places. */
interface Places {
  readonly session: string;
  readonly worker: string;
  readonly turn: string;
  readonly confirmation: string;
  readonly message: string;
  readonly event: string;
  readonly hash: string;
}
const NOWHERE: Places = {
  session: `sess_${NOBODY}`,
  worker: `sess_${NOBODY}`,
  turn: NOBODY,
  confirmation: NOBODY,
  message: NOBODY,
  event: NOBODY,
  hash: '0'.repeat(64),
};

/** A private session of ann in a workspace of its own, with a named worker that asks for an approval; a shared one of bob. */
async function openWorld() {
  const folder = fs.mkdtempSync(path.join(fs.realpathSync(os.tmpdir()), `${MARK}-`));
  onTestFinished(() => fs.rmSync(folder, { recursive: true, force: true }));
  fs.mkdirSync(path.join(folder, 'workers'));
  fs.writeFileSync(path.join(folder, 'workers', `${MARK}-helper.yaml`), 'instructions: Help.');
  const people = await startPeople({
    scenario: scenario(
      planner({ text: MARK, tool_calls: [delegate(`task ${MARK}`)] }, { text: 'done' }),
      worker(MARK, { tool_calls: [call('write_file', { path: 'a.txt', content: MARK })] }, { text: MARK }),
      [{ match: {}, times: 'inf', respond: { text: 'ok' } }],
    ),
  });
  const { server, ann, bob } = people;
  const hidden = await ann.open({
    share: 'private',
    client: MARK,
    workspace_path: folder,
    initial_active_model: 'opus',
  });
  const { turn_id } = (await ann.call('POST', `/sessions/${hidden.id}/turns`, { content: MARK })).body;
  const asked = (await server.event('tool.confirmation_requested')).payload as { confirmation_request_id: string };
  const { workers } = (await ann.call('GET', `/sessions/${hidden.id}/workers`)).body;
  const { messages } = (await ann.call('GET', `/sessions/${hidden.id}/messages`)).body;
  const { events } = (await ann.call('GET', `/sessions/${hidden.id}/events`)).body;
  const own = await bob.open({ initial_active_model: 'opus' });
  const { data } = (await ann.call('GET', '/analytics/cost?group_by=workspace&from=all')).body;
  expect(data).toHaveLength(1);
  const places: Places = {
    session: hidden.id,
    worker: workers[0].worker_session_id,
    turn: turn_id,
    confirmation: asked.confirmation_request_id,
    message: messages[0].id,
    event: events[0].id,
    hash: data[0].workspace_hash,
  };
  return { ...people, folder, own, places };
}

/** Which place a parameter or a field takes; null = it names nothing of a session. */
function placeOf(name: string): keyof Places | null {
  if (name === 'worker_session_id') return 'worker';
  if (/session/.test(name) || name === 'with') return 'session';
  if (name === 'confirmation_id') return 'confirmation';
  if (/turn_id$/.test(name)) return 'turn';
  if (/message_id$/.test(name) || name === 'before' || name === 'after') return 'message';
  if (name === 'since' || name === 'until') return 'event';
  if (name === 'workspace_hash') return 'hash';
  return null;
}

interface Question {
  readonly about: string;
  readonly method: string;
  /** With ids of the places. */
  target(places: Places): string;
  body(places: Places): unknown;
}

/** Names of body fields that take an id, at its top. */
function fieldsOf({ item }: DocumentedOperation): string[] {
  const schema = item.requestBody?.content['application/json'].schema ?? {};
  return [schema, ...(schema.anyOf ?? []), ...(schema.oneOf ?? [])].flatMap(({ properties = {} }: Parsed) =>
    Object.keys(properties),
  );
}

/** One question for each parameter and field that takes an id: what the path holds, and each of the others in the session of the caller. */
function questionsOf(operation: DocumentedOperation, own: string, workspace: string): Question[] {
  const { id, method, url, item } = operation;
  const inPath = [...url.matchAll(/\{(\w+)\}/g)].map(([, name]) => name!);
  const needed = (item.parameters ?? []).filter((one: Parsed) => one.in === 'query' && one.required === true);
  const rest = needed
    .filter(({ name }: Parsed) => placeOf(name) === null)
    .map(({ name }: Parsed) => `${name}=${encodeURIComponent(name === 'workspace_path' ? workspace : 'x')}`);
  const bodies: Readonly<Record<string, object>> = {
    submitTurn: { content: 'x' },
    estimateTurn: { content: 'x' },
    submitDelegation: { tier: 'fast', task: 'x' },
    scoreTurn: { score: 'good' },
    answerConfirmation: { decision: 'reject' },
    forkSession: { at_turn_id: NOBODY, workspace: 'current' },
    explainRoute: { workspace_path: workspace, content: 'x' },
    checkRoutingPolicy: { workspace_path: workspace },
    createSession: { workspace_path: workspace },
  };
  const hasBody = item.requestBody !== undefined;
  const at = (places: Places, ownPath: boolean) =>
    url.replace(/\{(\w+)\}/g, (_match, name: string) => {
      const place = placeOf(name);
      if (place === null) return 'x';
      if (ownPath && (place === 'session' || place === 'worker')) return own;
      return places[place];
    });
  const ask = (about: string, ownPath: boolean, query: (p: Places) => string[], field: string | null): Question => ({
    about: `${id} ${about}`,
    method,
    target: (places) => {
      const all = [...rest, ...query(places)];
      return `${at(places, ownPath)}${all.length > 0 ? `?${all.join('&')}` : ''}`;
    },
    body: (places) => {
      if (!hasBody) return undefined;
      const named = field === null ? {} : { [field]: places[placeOf(field)!] };
      return { ...bodies[id], ...named };
    },
  });
  const questions: Question[] = [];
  if (inPath.some((name) => placeOf(name) !== null)) questions.push(ask('in the path', false, () => [], null));
  if (inPath.some((name) => ['turn', 'message'].includes(placeOf(name) ?? '')))
    questions.push(ask('in the path, of an own session', true, () => [], null));
  for (const { name, in: where } of item.parameters ?? []) {
    const place = placeOf(name);
    if (where !== 'query' || place === null) continue;
    questions.push(ask(`${name} in the query`, true, (places) => [`${name}=${places[place]}`], null));
  }
  for (const field of fieldsOf(operation))
    if (placeOf(field) !== null) questions.push(ask(`${field} in the body`, true, () => [], field));
  return questions;
}

function shapeOf({ status, body }: Answer, places: readonly Places[]): string {
  const ids = places.flatMap((one) => Object.values(one)).sort((a, b) => b.length - a.length);
  let text = JSON.stringify(body) ?? '';
  for (const id of ids) text = text.replaceAll(id, 'ID');
  return `${status} ${text.replaceAll(/"(timestamp|start|end|updated_at)":"[^"]*"/g, '')}`;
}

const hidden = (world: People & { readonly places: Places }) => {
  const { session, worker: below, turn, confirmation, hash } = world.places;
  return [MARK, session, below, turn, confirmation, hash];
};

// Promise 23.2: in every place of every operation that takes an id of a session, a turn, a message, an event, an approval or a workspace, one of a private session is answered as an unknown one.
test('every operation answers ids of a private session as it answers unknown ones', async () => {
  const world = await openWorld();
  const { server, bob, eve, own, places, ann } = world;
  const asked: string[] = [];
  const faults: string[] = [];
  for (const operation of operations) {
    for (const question of questionsOf(operation, own.id, server.workspace)) {
      asked.push(question.about);
      for (const one of [bob, eve]) {
        const send = (which: Places) => one.call(question.method, question.target(which), question.body(which));
        const [there, nowhere] = [await send(places), await send(NOWHERE)];
        const [a, b] = [shapeOf(there, [places, NOWHERE]), shapeOf(nowhere, [places, NOWHERE])];
        if (a !== b) faults.push(`${one.name} ${question.about}:\n  ${a.slice(0, 400)}\n  ${b.slice(0, 400)}`);
        if (JSON.stringify(there.body)?.includes(MARK)) faults.push(`${one.name} ${question.about}: shows its text`);
      }
    }
  }
  expect(faults).toEqual([]);
  expect(asked.length).toBeGreaterThan(50);
  expect((await ann.call('GET', `/sessions/${places.session}`)).body.status).not.toBe('ended');
});

// Promise 23.2: no list, report, page or cursor of any operation shows an id, a text, a folder or a worker of a private session; groups that would are one row `private`.
test('every operation that takes no id shows nothing of it, page by page and by every group', async () => {
  const world = await openWorld();
  const { server, bob, eve, root, folder } = world;
  const variants: Readonly<Record<string, readonly string[]>> = {
    getCost: [
      ...DIMENSIONS.flatMap((one) => [`from=all&group_by=${one}`, `from=all&group_by=${one}&pricing=current`]),
      ...DIMENSIONS.map((one) => `from=all&group_by=${one === 'session' ? 'day' : 'session'},${one}`),
      'from=all&group_by=session&include_workers=true',
    ],
    getVerifiedResults: VERIFIED_GROUPS.map((one) => `from=all&group_by=${one}`),
    listSessions: ['include_workers=true', `q=${MARK}`, 'owner=ann', 'failed=true', 'failed=false'],
    listConfirmations: ['status=pending', 'status=all'],
  };
  const needs = (item: Parsed, name: string) => item.parameters?.some((one: Parsed) => one.name === name);
  const faults: string[] = [];
  let pages = 0;
  for (const { id, method, url, item } of operations) {
    if (method !== 'GET' || /\{/.test(url)) continue;
    for (const variant of ['', ...(variants[id] ?? [])]) {
      const where =
        needs(item, 'workspace_path') && id !== 'listSessions' ? [`workspace_path=${server.workspace}`] : [];
      const size = needs(item, 'limit') ? ['limit=1'] : [];
      for (const one of [bob, eve]) {
        let cursor: string | null = null;
        do {
          const query = [...where, ...size, variant, cursor === null ? '' : `cursor=${cursor}`].filter((x) => x !== '');
          const { status, body } = await one.call(method, `${url}?${query.join('&')}`);
          pages += 1;
          const text = JSON.stringify(body) ?? '';
          const found = hidden(world).filter(
            (word) => text.includes(word) && !(word === MARK && variant.includes(MARK)),
          );
          if (found.length > 0) faults.push(`${one.name} ${id} ${variant}: ${found} in ${text.slice(0, 300)}`);
          cursor = status === 200 ? ((body as Parsed)?.next_cursor ?? null) : null;
          if (cursor !== null) {
            const inside = Buffer.from(cursor, 'base64url').toString('latin1');
            if (hidden(world).some((word) => inside.includes(word))) faults.push(`${id} ${variant}: cursor ${inside}`);
          }
        } while (cursor !== null && pages < 2000);
      }
    }
  }
  expect(faults).toEqual([]);
  // Beside it an admin sees what the marks stand for.
  const all = JSON.stringify((await root.call('GET', '/analytics/cost?from=all&group_by=workspace')).body);
  expect(all).toContain(world.places.hash);
  for (const group of ['session', 'workspace'])
    expect(JSON.stringify((await bob.call('GET', `/analytics/cost?from=all&group_by=${group}`)).body)).toContain(
      '"private"',
    );
  // In the body: what would have been, of all and of the workspace.
  for (const body of [{ from: 'all' }, { from: 'all', workspace_path: folder }]) {
    const answer = await bob.call('POST', '/analytics/what-if', { ...body, tiers: {} });
    expect(hidden(world).filter((word) => word !== MARK && JSON.stringify(answer.body).includes(word))).toEqual([]);
  }
});
