// Images from a message to a provider: in their place, as bytes, whatever becomes of the file (10 §8, 01 §4.1).
import fs from 'node:fs';
import path from 'node:path';
import { describe, expect, test } from 'vitest';
import { tempFolder } from '../support/engine.ts';
import type { FakeCall } from '../support/fake-provider.ts';
import type { Parsed } from '../support/http.ts';
import { startReal, startStrictFake } from '../support/real-server.ts';
import { registryAt } from '../support/registry-at.ts';

const PNG = 'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg==';
const JPEG = Buffer.from('ffd8ffe000104a46494600010100000100010000ffd9', 'hex').toString('base64');
const inline = { type: 'image', source: { kind: 'base64', data: PNG }, media_type: 'image/png' };
const ref = (file: string, media_type = 'image/jpeg') => ({
  type: 'image',
  source: { kind: 'file_ref', data: file },
  media_type,
});
const text = (value: string) => ({ type: 'text', text: value });

async function world(model: string) {
  const folder = tempFolder();
  const workspace = path.join(folder, 'workspace');
  fs.mkdirSync(workspace);
  fs.writeFileSync(path.join(workspace, 'shot.jpg'), Buffer.from(JPEG, 'base64'));
  fs.writeFileSync(path.join(folder, 'outside.jpg'), Buffer.from(JPEG, 'base64'));
  const fake = await startStrictFake(() => ({ text: 'a picture' }));
  const start = () => startReal({ folder: path.join(folder, 'data'), registry: registryAt(fake) });
  const server = await start();
  return { workspace, fake, server, start, session: await server.session(workspace, model) };
}
/** The first user message's parts as `kind of what`. */
function shown(call: FakeCall): string[] {
  const { content } = (call.body.messages as Parsed[]).find((m) => m.role === 'user');
  return content.map((part: Parsed) => {
    if (part.type === 'text') return `text ${part.text}`;
    if (part.type === 'image_url') return `image ${part.image_url.url}`;
    return `image data:${part.source.media_type};${part.source.type},${part.source.data}`;
  });
}

describe.each([
  ['anthropic', 'opus'],
  ['openai', 'gpt'],
] as const)('on the %s wire', (_, model) => {
  // Promise 05.9: texts and images reach both real adapters in order.
  test('texts and images, inline and named by path, arrive in order as bytes', async () => {
    const { fake, server, session } = await world(model);
    const content = [text('compare'), inline, text('with'), ref('shot.jpg'), text('please')];
    expect((await server.turn(session, content)).status).toBe('completed');
    expect(shown(fake.calls[0]!)).toEqual([
      'text compare',
      `image data:image/png;base64,${PNG}`,
      'text with',
      `image data:image/jpeg;base64,${JPEG}`,
      'text please',
    ]);
    const { messages } = (await server.call('GET', `/sessions/${session}/messages`)).body;
    expect(messages[0].content).toEqual([
      text('compare'),
      inline,
      text('with'),
      { type: 'image', source: { kind: 'base64', data: JPEG }, media_type: 'image/jpeg' },
      text('please'),
    ]);
  });

  // Promise 01.29: an image named by path is stored as bytes; the file's later life changes no request.
  // Promise 10.16: a file changed or deleted later leaves requests as they were.
  test('a file that is replaced, and then removed, changes no later request, also after a restart', async () => {
    const { workspace, fake, server, session, start } = await world(model);
    const file = path.join(workspace, 'shot.jpg');
    await server.turn(session, [text('look'), ref('shot.jpg')]);
    fs.writeFileSync(file, Buffer.from(PNG, 'base64'));
    await server.turn(session, 'and now?');
    fs.rmSync(file);
    await server.close();
    await (await start()).turn(session, 'and then?');
    expect(fake.calls.map(shown)).toEqual(Array(3).fill(['text look', `image data:image/jpeg;base64,${JPEG}`]));
  });
});

// Promise 10.16: images that are not what they say, too large, or outside are refused by block, nothing is kept.
test('an image that is not what it says, too large, or outside is refused by its block, and nothing is kept', async () => {
  const { workspace, fake, server, session } = await world('opus');
  const large = Buffer.concat([Buffer.from(PNG, 'base64'), Buffer.alloc(6 * 1024 * 1024)]);
  fs.writeFileSync(path.join(workspace, 'large.png'), large);
  fs.symlinkSync('../outside.jpg', path.join(workspace, 'link.jpg'));
  const count = async () => {
    const { body } = await server.call('GET', `/sessions/${session}/messages`);
    return body.messages.length;
  };
  const before = server.events.length;
  for (const image of [
    { ...inline, source: { kind: 'base64', data: JPEG } },
    { ...inline, source: { kind: 'base64', data: large.toString('base64') } },
    ref('large.png', 'image/png'),
    ref('../outside.jpg'),
    ref('link.jpg'),
    ref('missing.jpg'),
    ref('shot.jpg', 'image/png'),
  ]) {
    const content = [text('look'), image];
    const { status, body } = await server.call('POST', `/sessions/${session}/turns`, { content });
    expect([status, body.error.code, body.error.details.issues[0].path]).toEqual([
      400,
      'validation_error',
      'content.1',
    ]);
  }
  expect(await count()).toBe(0);
  expect(server.events).toHaveLength(before);
  expect(fake.calls).toEqual([]);
});
