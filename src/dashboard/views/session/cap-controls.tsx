// The cap of a session with all its workers: how much of it is spent, and where a person raises, lowers or lifts it (14 §1).
import { useEffect, useId, useState } from 'preact/hooks';
import type { Session } from '#client/client.ts';
import { explain, useApi } from '#dashboard/data/api.ts';
import { exactUsd } from '#dashboard/format/format.ts';
import { CapField, parseCap } from '#dashboard/parts/fields.tsx';
import { BudgetBar } from '#dashboard/parts/labels.tsx';
import { Dialog } from '#dashboard/parts/panels.tsx';
import { limitFor, toPusd } from '#protocol/money.ts';
import type { Refusal } from './live/live-node.ts';

/** A worker's limit is its delegation's: it is shown and cannot be changed. */
export function Cap({ session, onChanged }: { readonly session: Session; readonly onChanged: () => void }) {
  const [open, setOpen] = useState(false);
  const { budget } = session;
  const bar = budget?.max_cost_usd == null ? null : <BudgetBar spent={budget.spent_usd} limit={budget.max_cost_usd} />;
  if (session.is_worker || session.status === 'ended') return bar;
  return (
    <>
      <button type="button" class="button ghost cap" aria-haspopup="dialog" onClick={() => setOpen(true)}>
        {bar === null ? 'Set a cap' : 'Cap'}
        {bar}
      </button>
      {open && <CapDialog session={session} onChanged={onChanged} onClose={() => setOpen(false)} />}
    </>
  );
}

function CapDialog(props: { readonly session: Session; readonly onChanged: () => void; readonly onClose: () => void }) {
  const { session, onClose } = props;
  const { client, reportFailure } = useApi();
  const [text, setText] = useState(session.max_cost_usd ?? '');
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState<string | null>(null);
  const field = useId();
  const saveCap = async (cap: string | null) => {
    setBusy(true);
    setError(null);
    try {
      await client.updateSession(session.id, { max_cost_usd: cap });
      props.onChanged();
      onClose();
    } catch (reason) {
      reportFailure(reason);
      setError(explain(reason));
      setBusy(false);
    }
  };
  return (
    <Dialog title="Session cap" onClose={onClose}>
      <form
        onSubmit={(event) => {
          event.preventDefault();
          void saveCap(parseCap(text));
        }}
      >
        <p class="quiet">
          The cap limits the cost of the session and its workers together.
          {session.budget !== null && ` Spent: ${exactUsd(session.budget.spent_usd)}.`} A new cap applies from the next
          model call. A turn that reached its cap continues when you raise the cap.
        </p>
        <div>
          <label for={field}>Cap in US dollars</label>
          <CapField id={field} value={text} onValue={setText} placeholder="none" required />
        </div>
        {error !== null && (
          <p class="field-error" role="alert">
            {error}
          </p>
        )}
        <div class="dialog-actions">
          {session.max_cost_usd !== null && (
            <button type="button" class="button" disabled={busy} onClick={() => void saveCap(null)}>
              No cap
            </button>
          )}
          <button type="submit" class="button primary" disabled={busy || parseCap(text) === null}>
            Set
          </button>
        </div>
      </form>
    </Dialog>
  );
}

// The cap that refused a call of the tree: what is spent, what the call may cost, and the cap that would let it pass (14 §3).

/** The refusal by the session's own cap, as long as that stands as it was; null when there is none. */
export function useMetCap(session: Session | null, streamed: Refusal | null): Refusal | null {
  const { client, reportFailure } = useApi();
  const [stored, setStored] = useState<Refusal | null>(null);
  const id = session === null || session.is_worker || session.max_cost_usd === null ? null : session.id;
  useEffect(() => {
    const gone = new AbortController();
    setStored(null);
    if (id === null) return;
    const query = { types: ['budget.exceeded'] as const, limit: 1000 };
    client.listEvents(id, query, { signal: gone.signal }).then(({ events }) => {
      const last = events.at(-1);
      if (last?.type === 'budget.exceeded') setStored(last.payload);
    }, reportFailure);
    return () => gone.abort();
  }, [id, client, reportFailure]);
  const met = streamed ?? stored;
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

// An interrupted turn: after a restart a person resumes it; at its cap a person raises the cap (14).

interface Props {
  readonly session: Session;
  /** By what its cap refused a call, where that is known. */
  readonly met: Refusal | null;
  readonly onChanged: () => void;
}

export function Interrupted({ session, met, onChanged }: Props) {
  const { client, reportFailure } = useApi();
  const [cap, setCap] = useState('');
  const [error, setError] = useState<string | null>(null);
  const field = useId();
  const turnId = session.current_turn_id;
  const byBudget = session.waiting_on.some(({ kind }) => kind === 'budget');
  const runStep = async (step: () => Promise<unknown>) => {
    setError(null);
    try {
      await step();
      onChanged();
    } catch (reason) {
      reportFailure(reason);
      setError(explain(reason));
    }
  };
  return (
    <form
      class="interrupted"
      onSubmit={(event) => {
        event.preventDefault();
        void runStep(() => client.updateSession(session.id, { max_cost_usd: parseCap(cap) }));
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
          <span>The turn was interrupted. Resume it to continue.</span>
          <button
            type="button"
            class="button"
            onClick={() => void runStep(async () => turnId !== null && client.resumeTurn(session.id, turnId))}
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
