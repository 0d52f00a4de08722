// A delegation in its place: who works on it, why on that model, how far it is, what it cost, and what came back.
import { useState } from 'preact/hooks';
import { explain, May, useApi } from '#dashboard/data/api.ts';
import { summarizeInput } from '#dashboard/format/format.ts';
import { Badge, Count, Elapsed, Icon, isScripted, Money, Simulated, State, Time } from '#dashboard/parts/labels.tsx';
import { CodeBlock, Markdown } from '#dashboard/parts/markdown.tsx';
import { formatPlace } from '#dashboard/shell/place.ts';
import { fromPusd, type Pusd } from '#protocol/money.ts';
import { getDelegationState, type LiveNode, type Route, type WorkerCall } from './live/live-node.ts';
import { WhyModel } from './route-chain.tsx';
import type { ToolUse } from './tool-card.tsx';
import { ConcludeWorker, ContinueWorker, WorktreeOutcome } from './worker-actions.tsx';
import { WorkerChanges } from './worker-changes.tsx';

/** More of a task than three lines can hold; the worker's own conversation has all of it. */
const TASK = 1000;

export function DelegationCard(props: {
  readonly use: ToolUse;
  readonly call: WorkerCall;
  /** All delegations of the session tree. */
  readonly calls: ReadonlyMap<string, WorkerCall>;
  /** Null where no worker came to be. */
  readonly node: LiveNode | null;
  readonly route: Route | undefined;
  /** What it cost with its own workers; null where it has none. */
  readonly inclusive: Pusd | null;
  /** When its planner read the result as a message; null for a worker in the foreground. */
  readonly delivered_at: string | null;
}) {
  const { use, call, node, inclusive, delivered_at } = props;
  const { record, worker_session_id: worker } = call;
  const closed = record !== null && record.ended_at !== null;
  const state = closed ? getDelegationState(record) : (node?.state ?? 'running');
  const from = record?.created_at ?? node?.started_at ?? null;
  const to = closed ? record.ended_at : (node?.ended_at ?? null);
  const running = !closed && node !== null && node.ended_at === null;
  return (
    <article class="delegation" aria-label={`Delegation: ${getDelegationTask(use).slice(0, TASK)}`}>
      <header>
        <Icon name="worker" />
        <Badge tone="worker">{record?.worker_name ?? call.tier ?? 'worker'}</Badge>
        <State state={state} />
        {record !== null && (
          <span class="quiet">{record.isolation === 'worktree' ? 'in a worktree' : 'in the shared workspace'}</span>
        )}
        {from !== null && <Elapsed from={from} to={to} />}
        {delivered_at !== null && (
          <span class="quiet">
            delivered <Time at={delivered_at} />
          </span>
        )}
        <span class="delegation-numbers">
          {node !== null && (
            <>
              <span class="quiet">
                <Count n={node.input_tokens} unit="token" rest=" in" /> in ·{' '}
                <Count n={node.output_tokens} unit="token" rest=" out" /> out
              </span>
              {isScripted(call.model ?? node.model) && <Simulated />}
              <Money usd={fromPusd(node.cost)} />
              {inclusive !== null && (
                <span>
                  <span class="quiet">with workers</span> <Money usd={fromPusd(inclusive)} />
                </span>
              )}
            </>
          )}
        </span>
        {running && (
          <May operation="concludeTurn">
            <ConcludeWorker sessionId={node.session_id} label={node.label} />
          </May>
        )}
        {running && <CancelWorker sessionId={node.session_id} label={node.label} />}
        {worker !== null && (
          <a class="button" href={formatPlace('sessions', worker)}>
            Open
          </a>
        )}
      </header>
      <p class="delegation-task">{getDelegationTask(use).slice(0, TASK)}</p>
      {worker !== null && (
        <WhyModel sessionId={worker} turnId={null} model={call.model ?? node?.model ?? null} known={props.route} />
      )}
      <DroppedTools names={record?.dropped_tools ?? call.dropped_tools} />
      {/* Until the outcome takes its place, so that what follows moves once. */}
      {!closed && node !== null && (running || node.tail !== '') && (
        <div class="delegation-live">
          <span class="quiet">{node.doing || '\u00a0'}</span>
          <p>{node.tail.slice(-320)}</p>
        </div>
      )}
      {closed && <Outcome record={record} later={listLater(record, props.calls)} />}
    </article>
  );
}

/** Tools that were asked for, or are the planner's, and that the worker did not get. */
function DroppedTools({ names }: { readonly names: readonly string[] }) {
  if (names.length === 0) return null;
  return (
    <p class="quiet dropped-tools">
      Tools that this worker did not get:{' '}
      {names.map((name, i) => (
        <span key={name}>
          {i > 0 && ', '}
          <code>{name}</code>
        </span>
      ))}
    </p>
  );
}

type Ended = NonNullable<WorkerCall['record']>;

/** Delegations in worktrees that the same session began after this one had ended, in their order. */
function listLater(record: Ended, calls: ReadonlyMap<string, WorkerCall>): readonly Ended[] {
  const ended_at = record.ended_at ?? '';
  return [...calls.values()]
    .flatMap(({ record: other }) => (other === null ? [] : [other]))
    .filter((other) => other.isolation === 'worktree' && other.parent_session_id === record.parent_session_id)
    .filter((other) => other.created_at >= ended_at)
    .sort((a, b) => (a.created_at < b.created_at ? -1 : 1));
}

function Outcome({ record, later }: { readonly record: Ended; readonly later: readonly Ended[] }) {
  const { output, error_message, failure_mode, changed_files, worker_session_id: worker } = record;
  return (
    <>
      {failure_mode !== null && (
        <p class={failure_mode === 'cancelled_by_user' ? 'quiet' : 'field-error'}>
          {failure_mode.replaceAll('_', ' ')}
          {error_message !== null && `: ${error_message.replace(`${failure_mode}: `, '')}`}
        </p>
      )}
      {output !== null && (
        <details class="delegation-output">
          <summary>Output</summary>
          {typeof output === 'string' && <Markdown text={output} />}
          {typeof output !== 'string' && <CodeBlock text={JSON.stringify(output, null, 2)} />}
        </details>
      )}
      {changed_files.length > 0 && worker !== null && (
        <WorkerChanges worker={worker} paths={changed_files.map(({ path }) => path)} />
      )}
      <CheckOutcome record={record} />
      <WorktreeOutcome record={record} later={later} />
      <May operation="submitDelegation">
        <ContinueWorker record={record} />
      </May>
    </>
  );
}

/** What the check of this worker decided, on which attempt, and what of the worker's changes did not count (20 §10). */
function CheckOutcome({ record }: { readonly record: NonNullable<WorkerCall['record']> }) {
  const { check, verified, attempts, protected_changes } = record;
  if (check === null) return null;
  return (
    <p class={verified === false ? 'field-error' : 'quiet'}>
      Check <code>{check}</code>: {describeCheck(verified, attempts)}.
      {protected_changes.length > 0 && ` Its changes to ${protected_changes.join(', ')} did not count.`}
    </p>
  );
}

function describeCheck(verified: boolean | null, attempts: number): string {
  if (verified === null) return 'not run';
  if (verified) return attempts === 1 ? 'passed at the first attempt' : `passed at attempt ${attempts}`;
  return attempts === 1 ? 'failed' : `failed, ${attempts} attempts`;
}

/** Cancels the worker's turn alone; its planner goes on. */
export function CancelWorker({ sessionId, label }: { readonly sessionId: string; readonly label: string }) {
  const { client, reportFailure } = useApi();
  const [status, setStatus] = useState<string | null>(null);
  const cancelDelegation = async () => {
    setStatus('Cancelling…');
    try {
      const { current_turn_id } = await client.getSession(sessionId);
      if (current_turn_id !== null) await client.cancelTurn(sessionId, current_turn_id);
    } catch (error) {
      reportFailure(error);
      setStatus(explain(error));
    }
  };
  return (
    <May operation="cancelTurn">
      <button
        type="button"
        class="button danger"
        disabled={status !== null}
        title={status ?? undefined}
        onClick={cancelDelegation}
      >
        Cancel<span class="visually-hidden"> {label}</span>
      </button>
    </May>
  );
}

/** The task in its own words; what names the worker or its files stands elsewhere on the card. */
function getDelegationTask({ input }: ToolUse): string {
  if (typeof input.task === 'string') return input.task;
  const { worker: _, ...rest } = input;
  return summarizeInput(rest);
}
