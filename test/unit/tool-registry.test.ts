// What `tools.disabled` takes away from everybody (09 §2).
import { expect, it } from 'vitest';
import { systemClock } from '#protocol/clock.ts';
import { builtinTools } from '#tools/builtin/builtin-tools.ts';
import { createToolRegistry, createToolSet } from '#tools/tool-registry.ts';

const shell = { sandbox: 'off', sandbox_network: false, env_passthrough: [] } as const;
const builtin = createToolSet(
  builtinTools({ shellEnv: {}, shell: { ...shell, env_passthrough: [] }, clock: systemClock }),
  { shipped: true },
);
const left = (...disabled: string[]) =>
  createToolRegistry(builtin, null, disabled)
    .knownTools('/')
    .definitions()
    .map(({ name }) => name);

it('a disabled name, or every name that begins as a disabled prefix does, is no tool any more; others stay', () => {
  const all = left();
  expect(all).toEqual(builtin.definitions().map(({ name }) => name));
  expect(left('shell', 'memory_*')).toEqual(all.filter((name) => name !== 'shell' && !name.startsWith('memory_')));
  expect(left('shel')).toEqual(all);
  expect(createToolRegistry(builtin, null, ['shell']).knownTools('/').definition('shell')).toBeNull();
});

it('only the question of a worker for more context cannot be disabled', () => {
  expect(left('*')).toEqual(['_request_context']);
});
