// A turn that was put down: by a restart, and a person takes it up again; by its cap, and a person raises it (14).
import { useId, useState } from 'preact/hooks';
import type { Session } from '#client/client.ts';
import { explain, useApi } from '#dashboard/data/api.ts';
import { exactUsd } from '#dashboard/format/usd.ts';
import { CapField, capOf } from '#dashboard/parts/cap-field.tsx';
import type { Refusal } from './live/live-state.ts';
import { MetCap } from './met-cap.tsx';

interface Props {
  readonly session: Session;
  /** By what its cap refused a call, where that is known. */
  readonly met: Refusal | null;
  readonly onChanged: () => void;
}

export function Interrupted({ session, met, onChanged }: Props) {
  const { client, failed } = useApi();
  const [cap, setCap] = useState('');
  const [error, setError] = useState<string | null>(null);
  const field = useId();
  const turnId = session.current_turn_id;
  const byBudget = session.waiting_on.some(({ kind }) => kind === 'budget');
  const act = async (step: () => Promise<unknown>) => {
    setError(null);
    try {
      await step();
      onChanged();
    } catch (reason) {
      failed(reason);
      setError(explain(reason));
    }
  };
  return (
    <form
      class="interrupted"
      onSubmit={(event) => {
        event.preventDefault();
        void act(() => client.updateSession(session.id, { max_cost_usd: capOf(cap) }));
      }}
    >
      {byBudget && session.max_cost_usd !== null ? (
        <>
          {met === null ? (
            <span>
              The next call does not fit into the cap of{' '}
              <strong class="number">{exactUsd(session.max_cost_usd)}</strong>.
            </span>
          ) : (
            <MetCap met={met} />
          )}
          <label for={field}>New cap</label>
          <CapField id={field} value={cap} onValue={setCap} required />
          <button type="submit" class="button">
            Raise
          </button>
        </>
      ) : (
        <>
          <span>The turn was interrupted and can go on where it stood.</span>
          <button
            type="button"
            class="button"
            onClick={() => void act(async () => turnId !== null && client.resumeTurn(session.id, turnId))}
          >
            Resume
          </button>
        </>
      )}
      {error !== null && (
        <span class="field-error" role="alert">
          {error}
        </span>
      )}
    </form>
  );
}
