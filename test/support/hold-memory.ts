// Stops an engine at a read of a workspace's memory, so that a test can act between two of its steps.
import { onTestFinished } from 'vitest';
import type { startEngine } from './engine.ts';

/** Holds the next read of the workspace's memory from the moment `when` is true. */
export function holdMemory(t: Awaited<ReturnType<typeof startEngine>>, when: () => boolean) {
  const { workspaces } = t.engine;
  const real = workspaces.memoryText;
  let reach = () => {};
  let release = () => {};
  const reached = new Promise<void>((resolve) => {
    reach = resolve;
  });
  const released = new Promise<void>((resolve) => {
    release = resolve;
  });
  let held = false;
  const memoryText: typeof real = async (root) => {
    const text = await real(root);
    if (held || !when()) return text;
    held = true;
    reach();
    await released;
    return text;
  };
  Object.assign(workspaces, { memoryText });
  onTestFinished(() => void Object.assign(workspaces, { memoryText: real }));
  return { reached, release };
}
