// One open question to a person about one call: its exact arguments, its deadline, and approve, reject or edit.
import type { ComponentChildren } from 'preact';
import { useEffect, useId, useLayoutEffect, useRef, useState } from 'preact/hooks';
import { ApiError, type Confirmation, type ConfirmationAnswer, type ConfirmationDetail } from '#client/client.ts';
import { explain, listIssues, useApi, useMay } from '../data/api.ts';
import { useNow } from '../data/queries.ts';
import { duration, emptyToNull, formatCount, visible } from '../format/format.ts';
import { Badge, Icon } from '../parts/labels.tsx';
import { Arguments, DraftChange, WorkerReview } from './arguments.tsx';
import { BillChoice, BillTable, NO_CHANGE, readBillChange } from './delegation-bill.tsx';

const SCOPES = [
  { value: 'once', label: 'Only this call' },
  { value: 'identical', label: 'Identical calls' },
  { value: 'always', label: 'All calls of this tool' },
] as const;
type Scope = (typeof SCOPES)[number]['value'];

/**
 * While the card holds the focus and nothing is typed, `a` approves, `r` rejects and `e` edits.
 * `onAnswered` is called when the server has taken the answer (`applied`), or had one already.
 */
export function ApprovalCard(props: {
  readonly confirmation: Confirmation;
  readonly onAnswered?: ((applied: boolean) => void) | undefined;
  /** Where it comes from; left out where one is there already. */
  readonly origin?: ComponentChildren;
}) {
  const { confirmation } = props;
  const { client, reportFailure } = useApi();
  const may = useMay();
  const mayAnswer = may('answerConfirmation');
  // Who may work in the session and not answer is its owner, on a server with `approvals.own: false`.
  const isOwnCall = !mayAnswer && may('submitTurn');
  const id = confirmation.confirmation_request_id;
  const [detail, setDetail] = useState<ConfirmationDetail | null>(null);
  const [scope, setScope] = useState<Scope>('once');
  const [draft, setDraft] = useState<string | null>(null);
  const [reason, setReason] = useState('');
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState<unknown>(null);
  const heading = useId();

  useEffect(() => {
    const gone = new AbortController();
    client.getConfirmation(id, { signal: gone.signal }).then(setDetail, (reason) => {
      if (gone.signal.aborted) return;
      reportFailure(reason);
      setError(reason);
    });
    return () => gone.abort();
  }, [client, reportFailure, id]);

  const sendAnswer = async (body: ConfirmationAnswer) => {
    setBusy(true);
    setError(null);
    try {
      const { applied } = await client.answerConfirmation(id, body);
      props.onAnswered?.(applied);
    } catch (reason) {
      reportFailure(reason);
      setError(reason);
      // Another person answered first: the parent of this card loads the question again.
      if (reason instanceof ApiError && reason.code === 'confirmation_already_resolved') props.onAnswered?.(false);
    } finally {
      setBusy(false);
    }
  };
  const [change, setChange] = useState(NO_CHANGE);
  const isBill = confirmation.kind === 'delegations';
  const approve = () => {
    const modified_input = isBill ? readBillChange(change) : null;
    if (modified_input !== null) return sendAnswer({ decision: 'modify', modified_input });
    return sendAnswer({ decision: 'approve', scope });
  };
  const reject = () => sendAnswer({ decision: 'reject', reason: emptyToNull(reason.trim()) });
  const asked = askedFor(confirmation, detail);
  const edit = () => setDraft(asked.text);
  const sendDraft = async () => {
    if (asked.format === 'yaml') return sendAnswer({ decision: 'modify', modified_yaml: draft });
    const input = parseArguments(draft ?? '');
    if (input === null) setError(new Error('The arguments must be a JSON object.'));
    else await sendAnswer({ decision: 'modify', modified_input: input });
    return undefined;
  };
  const isEditable = confirmation.modifiable && !isBill;
  const answerByKey = (event: KeyboardEvent) => {
    // A letter in a list of choices chooses there.
    const typing = [HTMLInputElement, HTMLTextAreaElement, HTMLSelectElement].some(
      (type) => event.target instanceof type,
    );
    // A key that is held down answers one question, not every one that gets the focus after it.
    if (
      !mayAnswer ||
      typing ||
      event.repeat ||
      event.ctrlKey ||
      event.metaKey ||
      event.altKey ||
      busy ||
      draft !== null
    )
      return;
    const act = { a: approve, r: reject, e: edit }[event.key];
    if (act === undefined || (act !== reject && detail === null) || (act === edit && !isEditable)) return;
    event.preventDefault();
    void act();
  };

  return (
    <article
      class="approval"
      aria-labelledby={props.origin === undefined ? heading : `${heading} ${heading}-origin`}
      tabIndex={0}
      onKeyDown={answerByKey}
    >
      <header>
        <Icon name="approvals" />
        <h2 id={heading}>
          {asked.verb} <code>{visible(asked.what)}</code>?
        </h2>
        {confirmation.is_worker && <Badge tone="worker">{confirmation.worker_name ?? 'worker'}</Badge>}
        <Badge>{confirmation.side_effects}</Badge>
        <Deadline at={confirmation.expires_at} />
      </header>
      {props.origin !== undefined && (
        <p class="approval-origin" id={`${heading}-origin`}>
          {props.origin}
        </p>
      )}
      {confirmation.rule_description && <p class="quiet">{confirmation.rule_description}</p>}
      {draft !== null && <Editor draft={draft} onDraft={setDraft} label={EDITING[asked.format].label} />}
      {draft !== null && asked.format === 'yaml' && <DraftChange proposed={asked.text} draft={draft} />}
      {isBill && <BillTable confirmation={confirmation} />}
      {isBill && mayAnswer && (
        <BillChoice count={confirmation.tool_use_ids.length} change={change} onChange={setChange} />
      )}
      {draft === null && !isBill && <Proposal confirmation={confirmation} asked={asked} detail={detail} />}
      {error !== null && (
        <div class="field-error" role="alert">
          <p>{explain(error)}</p>
          {listIssues(error).map(({ path, message }) => (
            <p key={`${path} ${message}`}>
              <code>{path || 'arguments'}</code> {message}
            </p>
          ))}
        </div>
      )}
      {isOwnCall && <p class="quiet">Another member or an admin answers the calls of your sessions.</p>}
      {mayAnswer && draft === null && (
        <div class="approval-actions">
          <button
            type="button"
            class="button primary"
            disabled={busy || detail === null}
            onClick={approve}
            aria-keyshortcuts="a"
          >
            Approve
          </button>
          {isEditable && (
            <button
              type="button"
              class="button"
              disabled={busy || detail === null}
              onClick={edit}
              aria-keyshortcuts="e"
            >
              Edit
            </button>
          )}
          <button type="button" class="button danger" disabled={busy} onClick={reject} aria-keyshortcuts="r">
            Reject
          </button>
          <ScopeChoice allowed={confirmation.allowed_scopes} scope={scope} onScope={setScope} />
          <input
            class="approval-reason"
            aria-label="Reason for a rejection, sent to the model"
            placeholder="Reason for a rejection"
            maxLength={500}
            value={reason}
            onInput={(event) => setReason(event.currentTarget.value)}
          />
        </div>
      )}
      {draft !== null && (
        <div class="approval-actions">
          <button type="button" class="button primary" disabled={busy} onClick={sendDraft}>
            {EDITING[asked.format].approve}
          </button>
          <button type="button" class="button" disabled={busy} onClick={() => setDraft(null)}>
            Back
          </button>
        </div>
      )}
    </article>
  );
}

interface Asked {
  readonly verb: string;
  readonly what: string;
  /** The whole of what is approved, as far as it is loaded. */
  readonly text: string;
  /** A worker's definition is YAML. */
  readonly format: keyof typeof EDITING;
}

const EDITING = {
  json: { label: 'Arguments as JSON', approve: 'Approve with these arguments' },
  yaml: { label: 'Definition as YAML', approve: 'Approve this definition' },
} as const;

/** What is approved, as it would happen. */
function Proposal(props: {
  readonly confirmation: Confirmation;
  readonly asked: Asked;
  readonly detail: ConfirmationDetail | null;
}) {
  const { confirmation, asked, detail } = props;
  if (asked.format === 'yaml') return <WorkerReview confirmation={confirmation} name={asked.what} yaml={asked.text} />;
  if (asked.verb !== 'Run' || detail === null) return <Arguments call={null} text={asked.text} />;
  return <Arguments call={{ tool: asked.what, input: detail.input }} text={asked.text} />;
}

/** A file to be shared and a worker to be made have words of their own; any other call shows its input (13 §7.1). */
function askedFor(confirmation: Confirmation, detail: ConfirmationDetail | null): Asked {
  const { payload, rule, tool_name } = confirmation;
  const of = (name: string) => String(payload?.[name] ?? '');
  if (confirmation.kind === 'delegations')
    return {
      verb: 'Start',
      what: formatCount(confirmation.tool_use_ids.length, 'delegation'),
      text: '',
      format: 'json',
    };
  if (rule === 'worker.create' && typeof payload?.yaml === 'string') {
    return { verb: 'Create worker', what: of('name'), text: payload.yaml, format: 'yaml' };
  }
  if (rule === 'sandbox.read' && typeof payload?.path === 'string') {
    const text = JSON.stringify(payload, null, 2);
    return { verb: `Share with ${of('target_worker')}`, what: payload.path, text, format: 'json' };
  }
  if (detail === null) return { verb: 'Run', what: tool_name, text: confirmation.input_summary, format: 'json' };
  return { verb: 'Run', what: tool_name, text: JSON.stringify(detail.input, null, 2), format: 'json' };
}

function Editor(props: { readonly draft: string; readonly onDraft: (text: string) => void; readonly label: string }) {
  const { draft, onDraft } = props;
  const area = useRef<HTMLTextAreaElement>(null);
  // Before the next key arrives, which an effect after the paint would miss.
  useLayoutEffect(() => area.current?.focus(), []);
  return (
    <textarea
      ref={area}
      class="approval-editor"
      aria-label={props.label}
      spellcheck={false}
      rows={Math.min(16, draft.split('\n').length + 1)}
      value={draft}
      onInput={(event) => onDraft(event.currentTarget.value)}
    />
  );
}

function ScopeChoice(props: {
  readonly allowed: readonly string[];
  readonly scope: Scope;
  readonly onScope: (scope: Scope) => void;
}) {
  const offered = SCOPES.filter(({ value }) => props.allowed.includes(value));
  if (offered.length < 2) return null;
  return (
    <select
      class="approval-scope"
      aria-label="Scope of the approval"
      value={props.scope}
      onChange={(event) => props.onScope(event.currentTarget.value as Scope)}
    >
      {offered.map(({ value, label }) => (
        <option key={value} value={value}>
          {label}
        </option>
      ))}
    </select>
  );
}

function Deadline({ at }: { readonly at: string }) {
  const left = Date.parse(at) - useNow();
  if (left <= 0) return <span class="deadline soon">expired</span>;
  if (left < 60_000) return <span class="deadline soon">{duration(left)} left</span>;
  return <span class="deadline">{duration(left)} left</span>;
}

function parseArguments(text: string): Record<string, unknown> | null {
  try {
    const value: unknown = JSON.parse(text);
    if (typeof value === 'object' && value !== null && !Array.isArray(value)) return value as Record<string, unknown>;
    return null;
  } catch {
    return null;
  }
}
