// States as small words with a dot; colour never says anything alone.
import type { ComponentChildren } from 'preact';

export type Tone = 'plain' | 'live' | 'ok' | 'warn' | 'bad' | 'worker';

export function Badge({ tone = 'plain', children }: { readonly tone?: Tone; readonly children: ComponentChildren }) {
  return <span class={`badge ${tone}`}>{children}</span>;
}

const TONES: Readonly<Record<string, Tone>> = {
  running: 'live',
  in_flight: 'live',
  cancelling: 'warn',
  interrupted: 'warn',
  failed: 'bad',
  cancelled: 'plain',
  completed: 'ok',
  waiting: 'warn',
};

/** A state of a session, a turn or a delegation. */
export function State({ state }: { readonly state: string }) {
  return (
    <span class={`state ${TONES[state] ?? 'plain'}`}>
      <span class="dot" aria-hidden="true" />
      {state.replaceAll('_', ' ')}
    </span>
  );
}
