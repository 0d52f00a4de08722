// The set of built-in tools, and the two that only speak to the engine (09 §1, §13, 04 §4, §8).
import { describe, expect, it } from 'vitest';
import { getToolKind } from '#acp/editor-content.ts';
import type { WorkerSpawner } from '#core/ports/tool-port.ts';
import { systemClock } from '#protocol/clock.ts';
import { defaultConfig } from '#protocol/config.ts';
import { toolText } from '#protocol/tool.ts';
import { builtinTools } from '#tools/builtin/builtin-tools.ts';
import { delegate, requestContext } from '#tools/builtin/delegation-tools.ts';
import { createToolSet } from '#tools/tool-registry.ts';
import { call, contextOf, failure, run, workspace } from './call.ts';

const factories = builtinTools({ shellEnv: {}, shell: defaultConfig('/data').tools.shell, clock: systemClock });

describe('the built-in tools', () => {
  it('have the names, classes and workspace needs that policy counts on', () => {
    const rows = createToolSet(factories)
      .definitions()
      .map((d) => [d.name, d.side_effects, d.requires_workspace, d.timeout_seconds]);
    expect(rows).toEqual([
      ['_request_context', 'none', false, null],
      ['delegate', 'execute', false, 0],
      ['edit_file', 'write', true, null],
      ['grep', 'read', true, null],
      ['list_files', 'read', true, null],
      ['memory_add', 'write', true, null],
      ['memory_consolidate', 'write', true, null],
      ['memory_replace', 'write', true, null],
      ['read_file', 'read', true, null],
      ['shell', 'execute', true, null],
      ['skill_load', 'read', false, null],
      ['worker_call', 'execute', false, 0],
      ['worker_create', 'write', false, null],
      ['workers', 'none', false, 0],
      ['write_file', 'write', true, null],
    ]);
  });

  it('have the same kind in an editor before and after their call has started', () => {
    for (const { name, side_effects } of createToolSet(factories).definitions())
      expect(getToolKind(name), name).toBe(getToolKind(name, side_effects));
  });

  it('are made afresh for every call and share one definition, so that its bytes never change', () => {
    for (const factory of factories) {
      expect(factory()).not.toBe(factory());
      expect(factory().definition).toBe(factory().definition);
    }
  });

  it('judge an input alike whether compiled at the start or on use', () => {
    const inputs = [{}, { path: 1 }, { path: 'a', unknown: true }, { command: 'ls' }, { tier: 'huge', task: '' }];
    const [now, onUse] = [createToolSet(factories), createToolSet(factories, { shipped: true })];
    for (const { name } of now.definitions())
      for (const input of inputs) expect(onUse.validate(name, input)).toEqual(now.validate(name, input));
  });

  it('take no input beside their own', () => {
    const registry = createToolSet(factories);
    for (const { name, input_schema } of registry.definitions()) {
      expect(input_schema, name).toMatchObject({ type: 'object', additionalProperties: false });
    }
  });

  it('have nothing to cancel before they run', async () => {
    for (const factory of factories) expect(await factory().cancel()).toBe(false);
  });
});

describe('delegate', () => {
  const input = { tier: 'fast', task: 'count' };
  const spawner: WorkerSpawner = {
    check: async (given) => (given.task === 'bad' ? [{ path: 'task', message: 'is bad' }] : []),
    shares: async () => [],
    spawn: async (given) => toolText(`done: ${given.task}`),
  };

  it('hands its input to the spawner, for the check and for the run', async () => {
    const root = workspace();
    expect(await delegate().check?.({ ...input, task: 'bad' }, contextOf(root, { spawner }))).toEqual([
      { path: 'task', message: 'is bad' },
    ]);
    expect(await run(delegate, root, input, { spawner })).toBe('done: count');
  });

  // Promise 04.16: the body of delegate refuses a worker.
  it('refuses by itself where there is no spawner', async () => {
    const error = await failure(call(delegate, workspace(), input, { is_worker: true }).output);
    expect([error.error_class, error.message]).toEqual(['permission_denied', 'workers cannot delegate']);
  });
});

describe('_request_context', () => {
  it('acknowledges a worker and refuses everybody else', async () => {
    expect(await run(requestContext, workspace(), {}, { is_worker: true })).toBe('Request recorded.');
    expect((await failure(call(requestContext, workspace(), {}).output)).error_class).toBe('permission_denied');
  });
});
