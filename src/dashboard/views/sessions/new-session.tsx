// Opens a session: a workspace, a named worker or none, a model or none, a cap or none, and the first message.
import { useId, useState } from 'preact/hooks';
import type { Session, WorkerInfo } from '#client/client.ts';
import { explain, useApi, useOwnToken } from '#dashboard/data/api.ts';
import { keepDraft } from '#dashboard/data/page-memory.ts';
import { usePolled } from '#dashboard/data/queries.ts';
import { emptyToNull, modelName } from '#dashboard/format/format.ts';
import { CapField, parseCap } from '#dashboard/parts/fields.tsx';
import { Dialog } from '#dashboard/parts/panels.tsx';
import { formatPlace, goTo } from '#dashboard/shell/place.ts';
import type { Share } from '#protocol/people/person.ts';
import { SHARES } from '../session/sharing.tsx';

// Which named worker a new session is, and which files its first message hands over (13 §5, §10).

const EVERY_MS = 60_000;
const PAGE = 200;

/** Those of a workspace that can be called; none while it is no workspace. */
function useCallable(workspace: string): readonly WorkerInfo[] {
  const { client } = useApi();
  const { data } = usePolled(
    async (signal) => {
      if (workspace === '') return [];
      const { workers } = await client.listWorkerDefinitions({ workspace_path: workspace, limit: PAGE }, { signal });
      return workers.filter(({ valid }) => valid);
    },
    workspace,
    EVERY_MS,
  );
  return data ?? [];
}

function WorkerChoice(props: {
  readonly workers: readonly WorkerInfo[];
  readonly value: string;
  readonly onChange: (name: string) => void;
}) {
  const id = useId();
  return (
    <div>
      <label for={id}>Named worker</label>
      <select id={id} value={props.value} onChange={(event) => props.onChange(event.currentTarget.value)}>
        <option value="">None (planner)</option>
        {props.workers.map(({ name }) => (
          <option key={name} value={name}>
            {name}
          </option>
        ))}
      </select>
    </div>
  );
}

export function Attachments(props: { readonly text: string; readonly onText: (text: string) => void }) {
  const id = useId();
  return (
    <div>
      <label for={id}>Attached files</label>
      <textarea
        id={id}
        rows={2}
        placeholder="One path per line, relative to the workspace"
        spellcheck={false}
        value={props.text}
        onInput={(event) => props.onText(event.currentTarget.value)}
      />
    </div>
  );
}

/** Paths as they stand, one a line. */
export function parseAttachments(text: string): string[] {
  return text
    .split('\n')
    .map((line) => line.trim())
    .filter((line) => line !== '');
}

const MODELS_MS = 60_000;
const MODES = [
  { value: '', label: 'As configured on the server' },
  { value: 'interactive', label: 'Request approval' },
  { value: 'strict', label: 'Deny calls that need approval' },
  { value: 'approve_all', label: 'Approve all calls' },
] as const;

export function NewSession(props: {
  /** Offered as one types. */
  readonly workspaces: readonly string[];
  readonly onClose: () => void;
}) {
  const { client, reportFailure } = useApi();
  const models = usePolled((signal) => client.listModels({ signal }), 'models', MODELS_MS);
  const [workspace, setWorkspace] = useState(props.workspaces[0] ?? '');
  // Asked about once it is written, not with every letter.
  const [settled, setSettled] = useState(workspace);
  const [worker, setWorker] = useState('');
  const [mode, setMode] = useState<(typeof MODES)[number]['value']>('');
  const [files, setFiles] = useState('');
  const [model, setModel] = useState('');
  const [cap, setCap] = useState('');
  const [share, setShare] = useState('');
  const { required } = useOwnToken();
  const [message, setMessage] = useState('');
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState<string | null>(null);
  const id = useId();
  const workers = useCallable(settled.trim());
  const chosen = workers.find(({ name }) => name === worker);
  const attachments = chosen?.accepts_attachments ? parseAttachments(files) : [];

  const createAndOpen = async () => {
    setBusy(true);
    setError(null);
    let session: Session | null = null;
    try {
      session = await client.createSession({
        workspace_path: workspace.trim(),
        worker: chosen?.name ?? null,
        approval_mode: emptyToNull(mode),
        initial_active_model: emptyToNull(model),
        max_cost_usd: parseCap(cap),
        share: emptyToNull(share) as Share | null,
      });
      if (message.trim() !== '') await client.submitTurn(session.id, { content: message, attachments });
      goTo(formatPlace('sessions', session.id));
    } catch (reason) {
      reportFailure(reason);
      const explanation = explain(reason);
      setError(explanation);
      setBusy(false);
      if (session === null) return;
      // The session is there, only its first message was refused: what was written waits in its field, with the reason.
      keepDraft(session.id, { text: message, files: chosen?.accepts_attachments ? files : null, error: explanation });
      goTo(formatPlace('sessions', session.id));
    }
  };
  return (
    <Dialog title="New session" onClose={props.onClose}>
      <form
        onSubmit={(event) => {
          event.preventDefault();
          void createAndOpen();
        }}
      >
        <div>
          <label for={`${id}-workspace`}>Workspace</label>
          <input
            id={`${id}-workspace`}
            list={`${id}-workspaces`}
            placeholder="/path/to/a/project"
            required
            value={workspace}
            onInput={(event) => {
              setWorkspace(event.currentTarget.value);
              setError(null);
            }}
            onChange={(event) => setSettled(event.currentTarget.value)}
          />
          <datalist id={`${id}-workspaces`}>
            {props.workspaces.map((path) => (
              <option key={path} value={path} />
            ))}
          </datalist>
        </div>
        <div class="field-row">
          <WorkerChoice workers={workers} value={chosen?.name ?? ''} onChange={setWorker} />
          <div>
            <label for={`${id}-mode`}>Approvals</label>
            <select
              id={`${id}-mode`}
              value={mode}
              onChange={(event) => setMode(event.currentTarget.value as typeof mode)}
            >
              {MODES.map(({ value, label }) => (
                <option key={value} value={value}>
                  {label}
                </option>
              ))}
            </select>
          </div>
        </div>
        <div class="field-row">
          <div>
            <label for={`${id}-model`}>Model</label>
            <select id={`${id}-model`} value={model} onChange={(event) => setModel(event.currentTarget.value)}>
              <option value="">{chosen === undefined ? 'Chosen by routing' : 'Chosen by the worker'}</option>
              {models.data?.models
                .filter(({ configured }) => configured)
                .map((one) => (
                  <option key={one.id} value={one.id}>
                    {modelName(one.id)}
                    {one.tier !== null && ` (${one.tier})`}
                  </option>
                ))}
            </select>
          </div>
          <div>
            <label for={`${id}-cap`}>Cap in US dollars</label>
            <CapField id={`${id}-cap`} value={cap} onValue={setCap} placeholder="none" />
          </div>
        </div>
        {required && (
          <div>
            <label for={`${id}-share`}>Who else may use it</label>
            <select id={`${id}-share`} value={share} onChange={(event) => setShare(event.currentTarget.value)}>
              <option value="">As configured on the server</option>
              {SHARES.map(({ value, label }) => (
                <option key={value} value={value}>
                  {label}
                </option>
              ))}
            </select>
          </div>
        )}
        <div>
          <label for={`${id}-message`}>First message</label>
          <textarea
            id={`${id}-message`}
            rows={3}
            placeholder="Describe the task"
            value={message}
            required={attachments.length > 0}
            onInput={(event) => setMessage(event.currentTarget.value)}
          />
        </div>
        {chosen?.accepts_attachments && <Attachments text={files} onText={setFiles} />}
        {error !== null && (
          <p class="field-error" role="alert">
            {error}
          </p>
        )}
        <div class="dialog-actions">
          <button type="button" class="button" onClick={props.onClose}>
            Close
          </button>
          <button type="submit" class="button primary" disabled={busy || workspace.trim() === ''}>
            Open session
          </button>
        </div>
      </form>
    </Dialog>
  );
}
