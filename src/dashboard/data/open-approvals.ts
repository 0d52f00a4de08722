// Every question that waits for a person, asked for once for the whole page: the navigation counts, the inbox shows.
import { createContext } from 'preact';
import { useContext } from 'preact/hooks';
import type { Confirmation, Health } from '#client/client.ts';
import { useApi } from './api.ts';
import { type Polled, usePolled } from './polled.ts';

const MOST = 200;

export interface Pulse {
  readonly health: Health;
  /** Oldest first. */
  readonly approvals: readonly Confirmation[];
  /** There are more than are listed. */
  readonly more: boolean;
}

/** How the server is and what it asks; a page without a token asks for one, since the second wants it. */
export function usePulse(): Polled<Pulse> {
  const { client } = useApi();
  return usePolled(async (signal) => {
    const [health, { confirmations, next_cursor }] = await Promise.all([
      client.getHealth({ signal }),
      client.listConfirmations({ limit: MOST }, { signal }),
    ]);
    return { health, approvals: confirmations, more: next_cursor !== null };
  }, 'pulse');
}

export const PulseContext = createContext<Polled<Pulse> | null>(null);

export function useOpenApprovals(): Polled<Pulse> {
  const pulse = useContext(PulseContext);
  if (pulse === null) throw new Error('no shell above this component');
  return pulse;
}
