// The cap that refused a call of the tree: what is spent, what the call may cost, and the cap that would let it pass (14 §3).
import { useEffect, useState } from 'preact/hooks';
import type { Session } from '#client/client.ts';
import { useApi } from '#dashboard/data/api.ts';
import { exactUsd } from '#dashboard/format/usd.ts';
import { limitFor, toPusd } from '#protocol/money.ts';
import type { Refusal } from './live/live-state.ts';

/** The refusal by the session's own cap, as long as that stands as it was; null when there is none. */
export function useMetCap(session: Session | null, told: Refusal | null): Refusal | null {
  const { client, failed } = useApi();
  const [asked, setAsked] = useState<Refusal | null>(null);
  const id = session === null || session.is_worker || session.max_cost_usd === null ? null : session.id;
  useEffect(() => {
    const gone = new AbortController();
    setAsked(null);
    if (id === null) return;
    const query = { types: ['budget.exceeded'] as const, limit: 1000 };
    client.listEvents(id, query, { signal: gone.signal }).then(({ events }) => {
      const last = events.at(-1);
      if (last?.type === 'budget.exceeded') setAsked(last.payload);
    }, failed);
    return () => gone.abort();
  }, [id, client, failed]);
  const met = told ?? asked;
  const cap = session?.max_cost_usd ?? null;
  if (id === null || met === null || cap === null || met.scope !== 'session') return null;
  return toPusd(met.limit_usd) === toPusd(cap) ? met : null;
}

export function MetCap({ met }: { readonly met: Refusal }) {
  const { limit_usd, spent_usd, reserved_usd, needed_usd } = met;
  const held = toPusd(reserved_usd) === 0n ? '' : `, ${exactUsd(reserved_usd)} held by running calls`;
  return (
    <span>
      A call did not fit into the cap of <strong class="number">{exactUsd(limit_usd)}</strong>: {exactUsd(spent_usd)}{' '}
      spent{held}, and it may cost up to {exactUsd(needed_usd)}. A cap of{' '}
      <strong class="number">{exactUsd(limitFor([spent_usd, reserved_usd, needed_usd]))}</strong> lets it pass.
    </span>
  );
}
