// What a person does with a worker: conclude it, apply what it left in a worktree, give it a further task (20 §2, §3).
import { useEffect, useState } from 'preact/hooks';
import type { Delegation, MetisClient } from '#client/client.ts';
import { explain, May, useApi } from '#dashboard/data/api.ts';
import { useRequest } from '#dashboard/data/use-request.ts';
import { CodeBlock } from '#dashboard/parts/markdown.tsx';
import { formatPlace } from '#dashboard/shell/place.ts';

/** Lets the worker answer with what it has; its planner goes on with that answer. */
export function ConcludeWorker({ sessionId, label }: { readonly sessionId: string; readonly label: string }) {
  const { client } = useApi();
  const { busy, error, send } = useRequest();
  const [isSent, setSent] = useState(false);
  const conclude = async () => {
    const { current_turn_id } = await client.getSession(sessionId);
    if (current_turn_id !== null) await client.concludeTurn(sessionId, current_turn_id);
  };
  return (
    <button
      type="button"
      class="button"
      disabled={busy || isSent}
      title={error === null ? 'Start no further tool and answer with what there is' : explain(error)}
      onClick={() => void send(conclude).then(setSent)}
    >
      Conclude<span class="visually-hidden"> {label}</span>
    </button>
  );
}

/**
 * Whether the changes of a worktree are in the workspace, their diff, and a button that applies them.
 * @param props.later delegations of the same session that began after this one had ended, in their order
 */
export function WorktreeOutcome(props: { readonly record: Delegation; readonly later: readonly Delegation[] }) {
  const { record, later } = props;
  const { client } = useApi();
  const { busy, error, send } = useRequest();
  const [answer, setAnswer] = useState<Parameters<typeof describeOutcome>[0] | null>(null);
  const [diff, setDiff] = useState<string | null>(null);
  const { isolation, worker_session_id: worker } = record;
  const now = record.applied === true ? record : (answer ?? record);
  const isContinued = useContinued(client, now.applied === true ? null : worker, later);
  if (isolation === 'shared' || worker === null) return null;
  const loadDiff = async () => {
    const found = await client.getChangesDiff(worker);
    setDiff(found.truncated ? `${found.diff}\n…` : found.diff);
  };
  const apply = async () => setAnswer(await client.applyChanges(worker));
  return (
    <div class="worktree-outcome">
      <p class={now.applied === true || isContinued ? 'quiet' : 'field-error'}>
        {isContinued ? CONTINUED : describeOutcome(now)}
      </p>
      {now.applied !== true && !isContinued && (
        <May operation="applyChanges">
          <button type="button" class="button" disabled={busy} onClick={() => void send(apply)}>
            Apply
          </button>
        </May>
      )}
      {error !== null && <p class="field-error">{explain(error)}</p>}
      <details onToggle={(event) => event.currentTarget.open && diff === null && void send(loadDiff)}>
        <summary>Diff of its worktree</summary>
        {diff !== null && <CodeBlock text={diff === '' ? 'No changes.' : diff} />}
      </details>
    </div>
  );
}

const CONTINUED =
  'Worked in a worktree; a worker that continued this one went on with its changes, and they are applied.';

/** Whether a worker that continues this one, or one that continues that, was applied. @param worker null = no need to know */
function useContinued(client: MetisClient, worker: string | null, later: readonly Delegation[]): boolean {
  const [resolved, setResolved] = useState<string | null>(null);
  const isApplied = later.some(({ applied }) => applied === true);
  const state = later.map(({ worker_session_id, applied }) => `${worker_session_id} ${applied}`).join();
  // `later` is a new array each time; `state` is what it holds.
  useEffect(() => {
    if (worker === null || !isApplied) return;
    isContinuationApplied(client, worker, later).then(
      (is) => is && setResolved(worker),
      // The button stays: the server refuses what cannot be applied.
      () => {},
    );
  }, [client, worker, state]);
  return worker !== null && resolved === worker;
}

async function isContinuationApplied(
  client: MetisClient,
  worker: string,
  later: readonly Delegation[],
): Promise<boolean> {
  const chain = new Set<string | null>([worker]);
  for (const { worker_session_id: id, applied } of later) {
    if (id === null) continue;
    const { continues_session_id } = await client.getSession(id);
    if (continues_session_id === null || !chain.has(continues_session_id)) continue;
    if (applied === true) return true;
    chain.add(id);
  }
  return false;
}

function describeOutcome({
  applied,
  conflicts,
  apply_error = null,
}: Pick<Delegation, 'applied' | 'conflicts'> & Partial<Pick<Delegation, 'apply_error'>>): string {
  if (applied === true) return 'Worked in a worktree; its changes are applied.';
  if (apply_error !== null) return `Worked in a worktree; its changes are not applied: ${apply_error}`;
  if (conflicts.length === 0) return 'Worked in a worktree; its changes are not applied.';
  return `Worked in a worktree; its changes are not applied, conflicts in ${conflicts.join(', ')}. A worker that continues this one can resolve them.`;
}

/** A further task for a worker that has ended: a new worker goes on with its messages. */
export function ContinueWorker({ record }: { readonly record: Delegation }) {
  const { client } = useApi();
  const { busy, error, send } = useRequest();
  const [task, setTask] = useState('');
  const [next, setNext] = useState<string | null>(null);
  const { parent_session_id: caller, worker_session_id: worker, entry, worker_name, tier } = record;
  if (worker === null) return null;
  const submit = async () => {
    const work =
      entry === 'worker_tool' && worker_name !== null
        ? { worker: worker_name, input: task }
        : { tier: tier ?? ('balanced' as const), task };
    const { worker_session_id } = await client.submitDelegation(caller, { ...work, continue: worker });
    setNext(worker_session_id);
    setTask('');
  };
  return (
    <details class="continue-worker">
      <summary>Continue</summary>
      <form
        onSubmit={(event) => {
          event.preventDefault();
          void send(submit);
        }}
      >
        <textarea
          aria-label="Task for the worker that continues this one"
          placeholder="Task for a worker that goes on with this conversation"
          rows={3}
          value={task}
          onInput={(event) => setTask(event.currentTarget.value)}
        />
        <button type="submit" class="button" disabled={busy || task.trim() === ''}>
          Continue
        </button>
      </form>
      {error !== null && <p class="field-error">{explain(error)}</p>}
      {next !== null && (
        <p class="quiet">
          Started <a href={formatPlace('sessions', next)}>{next}</a>.
        </p>
      )}
    </details>
  );
}
