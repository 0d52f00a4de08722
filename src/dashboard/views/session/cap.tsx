// The cap of a session with all its workers: how much of it is spent, and where a person raises, lowers or lifts it (14 §1).
import { useId, useState } from 'preact/hooks';
import type { Session } from '#client/client.ts';
import { explain, useApi } from '#dashboard/data/api.ts';
import { exactUsd } from '#dashboard/format/usd.ts';
import { BudgetBar } from '#dashboard/parts/amount.tsx';
import { CapField, capOf } from '#dashboard/parts/cap-field.tsx';
import { Dialog } from '#dashboard/parts/dialog.tsx';

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
  const { client, failed } = useApi();
  const [text, setText] = useState(session.max_cost_usd ?? '');
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState<string | null>(null);
  const field = useId();
  const set = async (cap: string | null) => {
    setBusy(true);
    setError(null);
    try {
      await client.updateSession(session.id, { max_cost_usd: cap });
      props.onChanged();
      onClose();
    } catch (reason) {
      failed(reason);
      setError(explain(reason));
      setBusy(false);
    }
  };
  return (
    <Dialog title="Cap of the session" onClose={onClose}>
      <form
        onSubmit={(event) => {
          event.preventDefault();
          void set(capOf(text));
        }}
      >
        <p class="quiet">
          What it and its workers may cost together.
          {session.budget !== null && ` Spent: ${exactUsd(session.budget.spent_usd)}.`} It holds from the next call to a
          model on; a turn that met its cap goes on when it is raised.
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
            <button type="button" class="button" disabled={busy} onClick={() => void set(null)}>
              No cap
            </button>
          )}
          <button type="submit" class="button primary" disabled={busy || capOf(text) === null}>
            Set
          </button>
        </div>
      </form>
    </Dialog>
  );
}
