// Tool sets of planners and of the workers they delegate to (09 §2, 04 §11).
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { canDelegate, listPlannerTools, selectWorkerTools } from '#core/policy/workers/worker-tools.ts';

const named = (...names: string[]) => names.map((name) => ({ name }));
const registered = [
  ...named('write_file', 'read_file', 'shell', 'skill_load', '_request_context'),
  { name: 'delegate', spawns: 'delegate' as const },
  { name: 'memory_add', planners_only: true },
];

describe('plannerTools', () => {
  it('has every registered tool sorted by name, without `_request_context`', () => {
    expect(listPlannerTools({ registered, offerDelegate: true })).toEqual([
      'delegate',
      'memory_add',
      'read_file',
      'shell',
      'skill_load',
      'write_file',
    ]);
    expect(listPlannerTools({ registered, offerDelegate: false })).not.toContain('delegate');
  });
});

describe('offersDelegate', () => {
  const capable = { can_delegate: true, capabilities: { supports_tools: true } } as Parameters<
    typeof canDelegate
  >[0]['model'];
  const turn = { depth: 0, delegateDepth: 1, model: capable, granted: null };

  it('follows the locked model, the depth and what a worker was granted', () => {
    expect(canDelegate(turn)).toBe(true);
    expect(canDelegate({ ...turn, model: { ...capable, can_delegate: false } })).toBe(false);
    const noTools = { ...capable, capabilities: { ...capable.capabilities, supports_tools: false } };
    expect(canDelegate({ ...turn, model: noTools })).toBe(false);
    expect(canDelegate({ ...turn, depth: 1 })).toBe(false);
    expect(canDelegate({ ...turn, depth: 1, delegateDepth: 2, granted: ['delegate'] })).toBe(true);
    expect(canDelegate({ ...turn, depth: 1, delegateDepth: 2, granted: ['read_file'] })).toBe(false);
  });
});

describe('workerTools', () => {
  const planner = ['delegate', 'memory_add', 'read_file', 'reviewer', 'shell', 'worker_call'];
  const call = {
    plannerTools: planner,
    allowed_tools: null as string[] | null,
    mayDelegate: false,
    registered: [...registered, { name: 'worker_call', spawns: 'worker_call' as const }],
  };

  // Promise 04.26: An empty list of tools is told from none, and what the default set lost is listed.
  it('inherits the planner’s set less memory, delegation and worker tools, which it lists, plus `_request_context`', () => {
    expect(selectWorkerTools(call)).toEqual({
      effective: ['_request_context', 'read_file', 'shell'],
      dropped_tools: ['delegate', 'memory_add', 'reviewer', 'worker_call'],
      allowed_tool_count: null,
    });
    const deeper = selectWorkerTools({ ...call, mayDelegate: true });
    expect(deeper.effective).toContain('delegate');
    expect(deeper.dropped_tools).not.toContain('delegate');
  });

  // Promise 04.5: A worker's tools are narrowed, what it must not have and names that the planner lacks are listed.
  it('narrows to `allowed_tools`, tells an empty list from none, lists what a worker must not have and what the planner lacks', () => {
    const allowed_tools = ['read_file', 'delegate', 'memory_add', 'nope', 'read_file'];
    expect(selectWorkerTools({ ...call, allowed_tools })).toEqual({
      effective: ['_request_context', 'read_file'],
      dropped_tools: ['delegate', 'memory_add', 'nope'],
      allowed_tool_count: 4,
    });
    expect(selectWorkerTools({ ...call, allowed_tools: ['_request_context'] }).dropped_tools).toEqual([]);
    expect(selectWorkerTools({ ...call, allowed_tools: [] })).toEqual({
      effective: ['_request_context'],
      dropped_tools: [],
      allowed_tool_count: 0,
    });
  });

  // Promise 09.25: `allowed_tools` finds each spelling of an MCP tool.
  it('finds an MCP tool by its own name, whatever the spelling, and keeps a hundred names that mean no tool', () => {
    const name = 'mcp__context7__resolve-library-id';
    const known = { ...call, plannerTools: [name], registered: named(name) };
    for (const asked of [name, 'mcp__context7__resolve_library_id', 'mcp__Context7__resolve-library-id'])
      expect(selectWorkerTools({ ...known, allowed_tools: [asked] })).toMatchObject({
        effective: ['_request_context', name],
        dropped_tools: [],
      });
    const made_up = Array.from({ length: 5000 }, (_, i) => `tool-${i}${'x'.repeat(1000)}`);
    const { dropped_tools } = selectWorkerTools({ ...known, allowed_tools: made_up });
    expect(dropped_tools).toHaveLength(100);
    expect(dropped_tools.every((one) => one.length === 128)).toBe(true);
  });

  // Promise 09.14: No worker of `delegate` has a tool its planner lacks, over random trees.
  it('never gives a worker a tool its planner lacks, down a tree of any shape', () => {
    const name = fc.constantFrom(
      'read_file',
      'shell',
      'memory_add',
      'memory_replace',
      'delegate',
      'reviewer',
      '_request_context',
    );
    const names = fc.array(name, { maxLength: 7 });
    fc.assert(
      fc.property(
        names,
        fc.array(fc.record({ allowed: fc.option(names), mayDelegate: fc.boolean() })),
        (top, levels) => {
          let parent = listPlannerTools({ registered: named(...new Set(top)), offerDelegate: true });
          for (const level of levels) {
            const child = selectWorkerTools({
              plannerTools: parent,
              allowed_tools: level.allowed,
              mayDelegate: level.mayDelegate,
              registered,
            });
            expect(child.effective).toEqual([...new Set(child.effective)].sort());
            for (const tool of child.effective.filter((t) => t !== '_request_context')) expect(parent).toContain(tool);
            expect(child.effective.some((t) => t.startsWith('memory_'))).toBe(false);
            expect(child.effective).toContain('_request_context');
            parent = child.effective;
          }
        },
      ),
    );
  });
});
