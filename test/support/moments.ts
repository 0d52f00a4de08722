// Bringing an engine to one exact moment: batches refused, turns of the event loop counted, doors held shut.

import { recover, resumeAll } from '#core/engine/lifecycle.ts';
import type { Batch } from '#core/ports/journal-writer.ts';
import type { AnyEvent } from '#protocol/event.ts';
import { type EngineOptions, startEngine, type TestEngine } from './engine.ts';

/** The process dies and another one starts on the same folder. */
export async function restart(t: TestEngine, options: EngineOptions): Promise<TestEngine> {
  t.abandon();
  const next = await startEngine({ ...options, folder: t.folder });
  await recover(next.engine);
  await resumeAll(next.engine);
  return next;
}

/** The journal refuses the first batches that `match` picks, as a full disk would. */
export function failOnce(t: TestEngine, match: (batch: Batch) => boolean, times = 1): void {
  const { journal } = t.engine;
  const { commit } = journal;
  let left = times;
  journal.commit = async (batch) => {
    if (left === 0 || !match(batch)) return commit(batch);
    left -= 1;
    throw new Error('disk full');
  };
}

export const writes = (batch: Batch, kind: string) => (batch.writes ?? []).some((w) => w.kind === kind);
export const emits = (batch: Batch, type: string) => batch.emit.some((e) => 'type' in e && e.type === type);

/** Calls `then` while the first event that matches is published, before anybody awaits its commit. */
export function at(t: TestEngine, match: (e: AnyEvent) => boolean, then: () => void): void {
  let done = false;
  t.engine.bus.subscribe('moment', (items) => {
    for (const item of items)
      if (!done && item.kind === 'event' && match(item.event as AnyEvent)) {
        done = true;
        then();
      }
  });
}

export function gate() {
  let open = () => {};
  const opened = new Promise<void>((resolve) => {
    open = resolve;
  });
  return { open, opened };
}

/** Lets this many turns of the event loop pass. */
export async function turns(n: number): Promise<void> {
  for (let i = 0; i < n; i++) await new Promise(setImmediate);
}
