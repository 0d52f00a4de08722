// A worker of `delegate` may nothing that its planner may not: every tool, path and scope of an answer, over random
// trees (09 §2, §5.2, §8). METIS_PROPERTY_RUNS sets the number of trees.
import fc from 'fast-check';
import { expect, it } from 'vitest';
import { answerConfirmation } from '#core/engine/answer-approval.ts';
import type { ToolFactory } from '#core/ports/tool-port.ts';
import { toolText } from '#protocol/tool.ts';
import { startEngine, type TestEngine } from '../support/engine.ts';
import { type Call, call, delegate, scenario } from '../support/scenario.ts';
import { tool } from '../support/tools.ts';

const RUNS = Math.ceil(Number(process.env.METIS_PROPERTY_RUNS ?? 300) / 30);

/** Takes paths in an array, and does nothing with them. */
const many: ToolFactory = () => {
  const made = tool('many', { side_effects: 'write' })();
  const paths = { type: 'object', properties: { paths: { type: 'array', items: { type: 'string' } } } };
  return {
    ...made,
    definition: { ...made.definition, input_schema: paths, requires_workspace: true, path_fields: ['paths'] },
    execute: async () => toolText('ok'),
  };
};
const TOOLS = [tool('pure'), tool('outward', { side_effects: 'network' }), many];

/** What every session of a tree tries. */
const PROBES: readonly Call[] = [
  call('read_file', { path: 'a.txt' }),
  call('read_file', { path: '.metis/MEMORY.md' }),
  call('read_file', { path: '.metis/trust.yaml' }),
  call('read_file', { path: '../outside' }),
  call('list_files', {}),
  call('list_files', { path: '/' }),
  call('grep', { pattern: 'a' }),
  call('write_file', { path: 'new.txt', content: '1' }),
  call('write_file', { path: '.metis/workers/x.yaml', content: '1' }),
  call('edit_file', { path: 'a.txt', old: 'a', new: 'a' }),
  call('shell', { command: 'true' }),
  call('many', { paths: ['a.txt', 'b.txt'] }),
  call('many', { paths: ['a.txt', '../outside'] }),
  call('many', { paths: ['a.txt', '.METIS/x'] }),
  call('pure', {}),
  call('outward', {}),
  call('memory_add', { file: 'MEMORY.md', entry: 'x' }),
  call('nope', {}),
];
const NAMES = [...new Set(PROBES.map((probe) => probe.name)), 'delegate'];

interface Node {
  readonly allowed: readonly string[] | null;
  readonly children: readonly Node[];
}
const someNames = fc.subarray(NAMES, { minLength: 1 }).map((names) => [...names, 'delegate']);
const node = (depth: number): fc.Arbitrary<Node> =>
  fc.record({
    allowed: fc.oneof(fc.constant(null), fc.subarray(NAMES), someNames),
    children: depth === 0 ? fc.constant([]) : fc.array(node(depth - 1), { maxLength: 2 }),
  });
const world = fc.record({
  tree: fc.array(node(2), { minLength: 1, maxLength: 2 }),
  disabled: fc.subarray(NAMES, { maxLength: 2 }).map((names) => names.filter((name) => name !== 'delegate')),
  modes: fc.dictionary(fc.constantFrom(...NAMES.slice(0, -1)), fc.constantFrom('auto', 'prompt', 'deny'), {
    maxKeys: 4,
  }),
  allow: fc.subarray(NAMES, { maxLength: 2 }),
  deny: fc.subarray(NAMES, { maxLength: 1 }).map((names) => names.filter((name) => name !== 'delegate')),
  mode: fc.constantFrom('interactive' as const, 'interactive' as const, 'approve_all' as const, 'strict' as const),
  answers: fc.array(
    fc.record({
      decision: fc.constantFrom('approve' as const, 'reject' as const),
      scope: fc.constantFrom('once' as const, 'identical' as const, 'always' as const),
    }),
    { minLength: 1, maxLength: 8 },
  ),
});

/** Each session probes, delegates, and probes once more: what it may at the end is what its workers are measured by. */
function play(tree: readonly Node[]) {
  let count = 0;
  const session = (match: object, children: readonly Node[]): unknown[] => {
    const named = children.map((child) => ({ child, task: `task <${++count}>` }));
    const calls = named.map(({ child: { allowed }, task }) =>
      delegate(task, { tier: 'deep', ...(allowed === null ? {} : { allowed_tools: allowed }) }),
    );
    const steps = [PROBES, calls.length > 0 ? calls : [call('pure', {})], PROBES];
    return [
      ...steps.map((tool_calls, i) => ({ match: { ...match, call: i + 1 }, respond: { tool_calls } })),
      { match: { ...match, call: 4 }, respond: { text: 'end' } },
      ...named.flatMap(({ child, task }) => session({ role: 'worker', user_contains: task }, child.children)),
    ];
  };
  return scenario(session({ role: 'planner' }, tree));
}

/**
 * 2 = runs unasked, 1 = a person is asked, 0 = refused: for each probe of the session's first and last round.
 * @param untold for a call that failed before it came to that, by the state of its file
 */
async function mayOf(t: TestEngine, sessionId: string, untold: number): Promise<readonly (readonly number[])[]> {
  const history = await t.engine.store.messages.history(sessionId as never);
  const rounds = history
    .filter((m) => m.role === 'assistant')
    .map((m) => m.content.filter((b) => b.type === 'tool_use'));
  const of = (id: string, type: string) =>
    t.events.find((e) => e.type === type && (e.payload as { tool_use_id?: string }).tool_use_id === id);
  const rank = (id: string) => {
    const asked = of(id, 'tool.confirmation_resolved')?.payload as { resolved_by: string; scope: unknown } | undefined;
    if (asked?.resolved_by === 'user') return 1;
    if (of(id, 'tool.called')) return 2;
    const failed = of(id, 'tool.failed')?.payload as { error_class: string } | undefined;
    return failed?.error_class === 'execution_error' ? untold : 0;
  };
  return [rounds[0] ?? [], rounds[2] ?? []].map((calls) => calls.map((block) => rank(block.id)));
}

// Promise 09.14: A worker may nothing that the one who called it may not: every tool, path and scope, over random trees.
it('is at most what the one who called may, for every worker of a random tree', async () => {
  let workers = 0;
  let held = 0;
  await fc.assert(
    fc.asyncProperty(world, async ({ tree, disabled, modes, allow, deny, mode, answers }) => {
      const t = await startEngine({
        tools: TOOLS,
        files: {
          'a.txt': 'a',
          '.metis/MEMORY.md': 'm',
          '.metis/trust.yaml': JSON.stringify({ always_allow: allow, always_deny: deny }),
        },
        config: {
          delegation: { delegate_depth: 3 },
          tools: { disabled },
          workers: { allow_approve_all: true },
          tool_confirmation: { per_tool: { ...(modes as Record<string, 'auto'>), delegate: 'auto' } },
        },
        scenario: play(tree),
      });
      const session = await t.session({ approval_mode: mode, initial_active_model: 'opus' });
      let asked = 0;
      const rounds = new Map<string, number>();
      const pending: Promise<unknown>[] = [];
      t.engine.bus.subscribe('person', (items) => {
        for (const item of items) {
          if (item.kind !== 'event') continue;
          const { type, session_id, payload } = item.event;
          if (type === 'llm.call_started') rounds.set(session_id, (rounds.get(session_id) ?? 0) + 1);
          if (type !== 'tool.confirmation_requested') continue;
          // In the last round nothing is remembered any more: it shows what holds.
          const last = (rounds.get(session_id) ?? 0) >= 3;
          const answer = last ? ({ decision: 'reject', scope: 'once' } as const) : answers[asked++ % answers.length]!;
          const id = (payload as { confirmation_request_id: string }).confirmation_request_id;
          const given = { ...answer, reason: null, modified_input: null };
          if (t.engine.approvals.has(id as never) || mode === 'interactive')
            pending.push(Promise.resolve().then(() => answered(t, id, given)));
          // A tree that the time limit leaves in its middle is closed under its person: told below, where it is waited for.
          pending.at(-1)?.catch(() => {});
        }
      });
      await t.run(session, 'go');
      await Promise.all(pending);
      for (const created of t.events.filter((e) => e.type === 'session.created')) {
        const child = await t.engine.store.sessions.record(created.session_id as never);
        if (!child?.parent_session_id) continue;
        workers += 1;
        const [first, last] = await mayOf(t, child.id, 0);
        const [, above] = await mayOf(t, child.parent_session_id, 2);
        expect(child.workspace_path).toBe(session.workspace_path);
        if (above?.length !== PROBES.length) continue;
        for (const round of [first, last])
          for (const [i, may] of (round ?? []).entries()) {
            expect(may, JSON.stringify(PROBES[i])).toBeLessThanOrEqual(above[i]!);
            held += 1;
          }
      }
      await t.close();
    }),
    { numRuns: RUNS, interruptAfterTimeLimit: 15_000, markInterruptAsFailure: false },
  );
  expect(workers).toBeGreaterThan(0);
  expect(held).toBeGreaterThan(0);
});

/** Once the engine waits for it; a prompt is stored just before. */
async function answered(t: TestEngine, id: string, answer: Parameters<typeof answerConfirmation>[2]): Promise<void> {
  while (!t.engine.approvals.has(id as never)) await new Promise(setImmediate);
  await answerConfirmation(t.engine, id, answer);
}
