// Each limit of attachments at exactly its value, and one beyond it (13 §5).
import fs from 'node:fs';
import path from 'node:path';
import { describe, expect, test } from 'vitest';
import { readAttachments } from '#core/engine/definitions/session-files.ts';
import { type WorkerDefinition, WorkerDefinitionSchema } from '#protocol/worker-definition.ts';
import { startEngine } from '../../support/engine.ts';

const MOST = 32 * 1024 * 1024;
const three = ['1.md', '2.md', '3.md'];

function define(name: string, over: object = {}): WorkerDefinition {
  return WorkerDefinitionSchema.parse({ name, ...over });
}

/** A planner or, with `own`, a worker that attaches files of these sizes. */
async function startWith(sizes: Readonly<Record<string, number>>) {
  const t = await startEngine({ scenario: { version: 1, rules: [] } });
  for (const [file, bytes] of Object.entries(sizes)) {
    fs.mkdirSync(path.dirname(path.join(t.workspace, file)), { recursive: true });
    fs.writeFileSync(path.join(t.workspace, file), Buffer.alloc(bytes, 'x'));
  }
  return (paths: readonly string[], callee: object, own: object | null = null) => {
    const worker_definition = own === null ? null : { definition: define('lead', own), output_schema: null };
    return readAttachments(
      t.engine,
      { workspace_path: t.workspace, tree_path: null, worker_definition },
      define('w', callee),
      paths,
    );
  };
}

const boxed = (over: object = {}) => ({ sandboxes: { in: { name: 'in', path: 'data', ...over } } });

describe('attachments', () => {
  // Promise 13.12: count and total bytes hold at exactly the limit of either policy, one more is refused.
  test.each([
    ['the count', { max_attachments: 2 }, '3 attachments, the attachment policy of WHO takes 2 (max_attachments)'],
    [
      'the total bytes',
      { max_total_bytes: 8 },
      'more than 8 bytes of attachments, the attachment policy of WHO takes no more (max_total_bytes)',
    ],
  ])('fill %s of either policy, and one more is refused', async (_, attachment_policy, fault) => {
    const attach = await startWith({ '1.md': 4, '2.md': 4, '3.md': 1, 'data/1.md': 4, 'data/2.md': 4, 'data/3.md': 1 });
    const two = await attach(three.slice(0, 2), { attachment_policy });
    expect(two.files.map(({ path, bytes }) => [path, bytes])).toEqual([
      ['workspace/1.md', 4],
      ['workspace/2.md', 4],
    ]);
    await expect(attach(three, { attachment_policy })).rejects.toThrow(fault.replace('WHO', "'w'"));

    const inBox = three.map((name) => `in/${name}`);
    const own = { ...boxed(), attachment_policy };
    expect((await attach(inBox.slice(0, 2), {}, own)).files).toHaveLength(2);
    await expect(attach(inBox, {}, own)).rejects.toThrow(fault.replace('WHO', "the caller 'lead'"));
  });

  test('are four and 10,000,000 bytes where no policy is written', async () => {
    const attach = await startWith({ a: 1, b: 1, c: 1, d: 1, e: 1, large: 9_999_999, 'too-large': 10_000_001 });
    expect((await attach(['a', 'b', 'c', 'd'], {})).files).toHaveLength(4);
    await expect(attach(['a', 'b', 'c', 'd', 'e'], {})).rejects.toThrow('takes 4 (max_attachments)');
    expect((await attach(['large', 'a'], {})).files).toHaveLength(2);
    await expect(attach(['large', 'a', 'b'], {})).rejects.toThrow('more than 10000000 bytes');
    await expect(attach(['too-large'], {})).rejects.toThrow('more than 10000000 bytes');
  });

  test('of a worker that takes none are refused', async () => {
    const attach = await startWith({ a: 1 });
    await expect(attach(['a'], { attachment_policy: { max_attachments: 0 } })).rejects.toThrow('takes 0');
  });

  test.each([
    ['an allowed suffix', { allowed_suffixes: ['.md'] }, '1.md', null],
    ['an allowed suffix in other letters', { allowed_suffixes: ['.md'] }, '1.MD', null],
    ['the end of an allowed suffix', { allowed_suffixes: ['.md'] }, '1md', 'takes .md only (allowed_suffixes)'],
    ['an allowed suffix and more', { allowed_suffixes: ['.md'] }, '1.mdx', 'takes .md only (allowed_suffixes)'],
    ['a suffix that folders have', { allowed_suffixes: ['.md'] }, 'a.md/1', 'takes .md only (allowed_suffixes)'],
    ['a denied suffix', { denied_suffixes: ['.md'] }, '1.md', 'refuses its suffix (denied_suffixes)'],
    ['a denied suffix and more', { denied_suffixes: ['.md'] }, '1.mdx', null],
  ])('with %s', async (_, attachment_policy, file, fault) => {
    const attach = await startWith({ [file]: 1 });
    const attached = attach([file], { attachment_policy });
    if (fault === null) expect((await attached).files).toHaveLength(1);
    else await expect(attached).rejects.toThrow(fault);
  });

  test('fill the max_bytes of their sandbox, and one byte more is refused', async () => {
    const attach = await startWith({ 'data/fits': 10, 'data/large': 11 });
    const own = boxed({ max_bytes: 10 });
    expect((await attach(['in/fits'], {}, own)).files).toMatchObject([{ path: 'in/fits', bytes: 10 }]);
    await expect(attach(['in/large'], {}, own)).rejects.toThrow(
      "file_too_large: in/large has 11 bytes, at most 10 are allowed in 'in'",
    );
  });

  // Promise 13.12: no call takes more than 32 MiB.
  test('are 32 MiB at most, whatever a policy says', async () => {
    const attach = await startWith({ most: MOST - 1, one: 1, two: 2 });
    const callee = { attachment_policy: { max_total_bytes: 10 * MOST } };
    const { files, blocks } = await attach(['most', 'one'], callee);
    expect([files.map(({ bytes }) => bytes), blocks.length]).toEqual([[MOST - 1, 1], 2]);
    await expect(attach(['most', 'two'], callee)).rejects.toThrow(
      `more than ${MOST} bytes of attachments, no call takes more`,
    );
  });
});
