// What the models say in a test of restarts, by who asks and how far it is; single answers can be held back.
import type { FakeCall, FakeMessage } from '../support/fake-provider.ts';
import type { Json } from './world.ts';

export interface Script {
  answer(call: FakeCall): Promise<FakeMessage>;
  /** How often each call was asked for, e.g. `planner 0`: who asks, and its answers so far in this turn. */
  readonly asked: ReadonlyMap<string, number>;
  /** The next ask for this call is answered only when released. */
  hold(key: string): { readonly arrived: Promise<void>; release(): void };
}

/** A message to which every model says `done`. */
export const JUST_TALK = 'just talk';

/** @param answers by `planner n` and `worker n`; what is not there says `done` */
export function script(answers: Readonly<Record<string, FakeMessage>>): Script {
  const asked = new Map<string, number>();
  const held = new Map<string, { arrive(): void; readonly released: Promise<void> }>();
  return {
    asked,
    async answer(call) {
      const key = place(call);
      asked.set(key, (asked.get(key) ?? 0) + 1);
      const gate = held.get(key);
      if (gate) {
        held.delete(key);
        gate.arrive();
        await gate.released;
      }
      return (call.user === JUST_TALK ? null : answers[key]) ?? { text: 'done' };
    },
    hold(key) {
      let release = () => {};
      const released = new Promise<void>((resolve) => {
        release = resolve;
      });
      const arrived = new Promise<void>((arrive) => {
        held.set(key, { arrive, released });
      });
      return { arrived, release };
    },
  };
}

function place(call: FakeCall): string {
  const said = (call.body.messages as Json[]).filter((m) => m.role !== 'system');
  const asks = (m: Json) =>
    m.role === 'user' && (typeof m.content === 'string' || m.content.some((block: Json) => block.type === 'text'));
  const answers = said.slice(said.findLastIndex(asks) + 1).filter((m) => m.role === 'assistant').length;
  return `${call.wire === 'anthropic' ? 'planner' : 'worker'} ${answers}`;
}
