// The cap of a session with all its workers: how much of it is spent, and where a person raises, lowers or lifts it (14 §1).
import { useEffect, useId, useState } from 'preact/hooks';
import type { Session, Turn } from '#client/client.ts';
import { useApi, useMay } from '#dashboard/data/api.ts';
import { useRequest } from '#dashboard/data/use-request.ts';
import { exactUsd } from '#dashboard/format/format.ts';
import { CapField, parseCap } from '#dashboard/parts/fields.tsx';
import { BudgetBar, type BudgetMarks } from '#dashboard/parts/labels.tsx';
import { Dialog, RequestError } from '#dashboard/parts/panels.tsx';
import { fromPusd, limitFor, sumPusd, toPusd } from '#protocol/money.ts';
import type { Refusal } from './live/live-node.ts';

/** A worker's limit is its delegation's: it is shown and cannot be changed. */
export function Cap(props: {
  readonly session: Session;
  /** The cap that lets a refused call pass; null: no call was refused. */
  readonly sufficient: string | null;
  readonly turns: ReadonlyMap<string, Turn>;
  readonly onChanged: () => void;
}) {
  const { session } = props;
  const [open, setOpen] = useState(false);
  const may = useMay();
  const { budget } = session;
  const bar =
    budget?.max_cost_usd == null ? null : (
      <BudgetBar spent={budget.spent_usd} limit={budget.max_cost_usd} marks={placeForecast(session, props.turns)} />
    );
  if (session.is_worker || session.status === 'ended' || !may('updateSession')) return bar;
  return (
    <>
      <button type="button" class="button cap" aria-haspopup="dialog" onClick={() => setOpen(true)}>
        {bar === null ? 'Set a cap' : 'Cap'}
        {bar}
      </button>
      {open && <CapDialog {...props} onClose={() => setOpen(false)} />}
    </>
  );
}

/** The forecast of the running turn, behind what the session spent before it; null without one. */
function placeForecast(
  { forecast_usd, current_turn_id }: Session,
  turns: ReadonlyMap<string, Turn>,
): BudgetMarks | null {
  if (forecast_usd === null) return null;
  const earlier = [...turns.values()].filter(({ id }) => id !== current_turn_id);
  const before = sumPusd(
    earlier.flatMap(({ total_cost_usd, workers_cost_usd }) => [toPusd(total_cost_usd), toPusd(workers_cost_usd)]),
  );
  const addEarlier = (usd: string) => fromPusd(sumPusd([before, toPusd(usd)]));
  return { p50: addEarlier(forecast_usd.p50_usd), p90: addEarlier(forecast_usd.p90_usd) };
}

function CapDialog(props: Parameters<typeof Cap>[0] & { readonly onClose: () => void }) {
  const { session, sufficient, onClose } = props;
  const { client } = useApi();
  const { busy, error, send } = useRequest();
  const [text, setText] = useState(sufficient ?? session.max_cost_usd ?? '');
  const field = useId();
  const saveCap = async (cap: string | null) => {
    const isSaved = await send(() => client.updateSession(session.id, { max_cost_usd: cap }));
    if (!isSaved) return;
    props.onChanged();
    onClose();
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
        {sufficient !== null && (
          <p>
            A cap of <strong class="number">{exactUsd(sufficient)}</strong> lets the refused call pass.
          </p>
        )}
        <div>
          <label for={field}>Cap in US dollars</label>
          <CapField id={field} value={text} onValue={setText} placeholder="none" required />
        </div>
        <RequestError error={error} />
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
  const id = findCapped(session);
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
  if (toPusd(met.limit_usd) === toPusd(cap)) return met;
  return null;
}

/** The session whose cap may have refused a call; a worker's limit is its delegation's. */
function findCapped(session: Session | null): string | null {
  if (session === null || session.is_worker || session.max_cost_usd === null) return null;
  return session.id;
}

/** The cap that lets the refused call pass: as the newest turn reports it, else of the refusal that was streamed. */
export function findSufficientCap(session: Session | null, turn: Turn | undefined, met: Refusal | null): string | null {
  const refusal = turn?.budget_refusal ?? null;
  const cap = session?.max_cost_usd ?? null;
  const isStanding = cap !== null && refusal?.scope === 'session' && toPusd(refusal.limit_usd) === toPusd(cap);
  if (isStanding && session?.is_worker === false) return refusal.sufficient_limit_usd;
  if (met === null) return null;
  return limitFor(sumPusd([met.spent_usd, met.reserved_usd, met.needed_usd].map(toPusd)));
}

export function MetCap({ met, sufficient }: { readonly met: Refusal; readonly sufficient: string | null }) {
  const { limit_usd, spent_usd, reserved_usd, needed_usd } = met;
  return (
    <span>
      A call did not fit into the cap of <strong class="number">{exactUsd(limit_usd)}</strong>: {exactUsd(spent_usd)}{' '}
      spent
      {toPusd(reserved_usd) !== 0n && `, ${exactUsd(reserved_usd)} held by running calls`}, and it may cost up to{' '}
      {exactUsd(needed_usd)}.
      {sufficient !== null && (
        <>
          {' '}
          A cap of <strong class="number">{exactUsd(sufficient)}</strong> lets it pass.
        </>
      )}
    </span>
  );
}

// An interrupted turn: after a restart a person resumes it; at its cap a person raises the cap (14).

interface Props {
  readonly session: Session;
  /** By what its cap refused a call, where that is known. */
  readonly met: Refusal | null;
  readonly sufficient: string | null;
  readonly onChanged: () => void;
}

/** The refusal of the cap with a field that holds the cap that would do. */
export function RaiseCap({ session, met, sufficient, onChanged }: Props) {
  const { client } = useApi();
  const { error, send } = useRequest();
  const [typed, setTyped] = useState<string | null>(null);
  const field = useId();
  const cap = typed ?? sufficient ?? '';
  const raise = async () => {
    const isRaised = await send(() => client.updateSession(session.id, { max_cost_usd: parseCap(cap) }));
    if (isRaised) onChanged();
  };
  return (
    <form
      class="interrupted"
      onSubmit={(event) => {
        event.preventDefault();
        void raise();
      }}
    >
      {met !== null && <MetCap met={met} sufficient={sufficient} />}
      {met === null && session.max_cost_usd !== null && (
        <span>
          The next call does not fit into the cap of <strong class="number">{exactUsd(session.max_cost_usd)}</strong>.
        </span>
      )}
      <label for={field}>New cap</label>
      <CapField id={field} value={cap} onValue={setTyped} required />
      <button type="submit" class="button">
        Raise
      </button>
      <RequestError error={error} />
    </form>
  );
}

export function Interrupted(props: Props) {
  const { session, onChanged } = props;
  const { client } = useApi();
  const { error, send } = useRequest();
  const turnId = session.current_turn_id;
  const byBudget = session.max_cost_usd !== null && session.waiting_on.some(({ kind }) => kind === 'budget');
  if (byBudget) return <RaiseCap {...props} />;
  const resume = async () => {
    const isResumed = await send(async () => turnId !== null && (await client.resumeTurn(session.id, turnId)));
    if (isResumed) onChanged();
  };
  return (
    <div class="interrupted">
      <span>The turn was interrupted. Resume it to continue.</span>
      <button type="button" class="button" onClick={() => void resume()}>
        Resume
      </button>
      <RequestError error={error} />
    </div>
  );
}
