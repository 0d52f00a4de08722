// "Branch from here": a fork behind a message, with its price before it is made (21 §4).
import { useId, useState } from 'preact/hooks';
import { ApiError, type ForkedSession, type MetisClient } from '#client/client.ts';
import { useApi } from '#dashboard/data/api.ts';
import { usePolled } from '#dashboard/data/queries.ts';
import { useRequest } from '#dashboard/data/use-request.ts';
import { emptyToNull, exactUsd, formatCount, modelName } from '#dashboard/format/format.ts';
import { Icon } from '#dashboard/parts/labels.tsx';
import { Dialog, RequestError } from '#dashboard/parts/panels.tsx';
import { formatPlace, goTo } from '#dashboard/shell/place.ts';

const MODELS_MS = 60_000;
const PLACES = [
  { value: 'current', label: 'The same workspace' },
  { value: 'worktree', label: 'A worktree: a copy of the workspace' },
  { value: 'none', label: 'No workspace: without tools for files and commands' },
] as const;
type Workspace = (typeof PLACES)[number]['value'];

interface Branch {
  readonly message: string;
  readonly model: string | null;
  readonly workspace: Workspace;
}

export function BranchButton(props: { readonly sessionId: string; readonly messageId: string }) {
  const [open, setOpen] = useState(false);
  return (
    <>
      <button
        type="button"
        class="icon-button branch"
        aria-label="Branch from here"
        title="Branch from here"
        aria-haspopup="dialog"
        onClick={() => setOpen(true)}
      >
        <Icon name="branch" />
      </button>
      {open && <BranchDialog {...props} onClose={() => setOpen(false)} />}
    </>
  );
}

/** The fork as planned, at the message or at the nearest point where a session can be forked. */
interface Plan {
  readonly at: string;
  readonly moved: 'back' | 'ahead' | null;
  readonly fork: ForkedSession;
}

async function planFork(client: MetisClient, sessionId: string, at: string, branch: Branch): Promise<Plan> {
  const plan = (id: string) =>
    client.forkSession(sessionId, {
      at_message_id: id,
      model: branch.model,
      workspace: branch.workspace,
      dry_run: true,
    });
  try {
    return { at, moved: null, fork: await plan(at) };
  } catch (error) {
    if (!(error instanceof ApiError && error.code === 'invalid_fork_point')) throw error;
    const { nearest_before: before, nearest_after: after } = error.details;
    const nearest = before ?? after;
    if (typeof nearest !== 'string') throw error;
    return { at: nearest, moved: before === null ? 'ahead' : 'back', fork: await plan(nearest) };
  }
}

function BranchDialog(props: { readonly sessionId: string; readonly messageId: string; readonly onClose: () => void }) {
  const { sessionId, messageId, onClose } = props;
  const { client } = useApi();
  const { busy, error, send } = useRequest();
  const [branch, setBranch] = useState<Branch>({ message: '', model: null, workspace: 'current' });
  const change = (part: Partial<Branch>) => setBranch({ ...branch, ...part });
  const models = usePolled((signal) => client.listModels({ signal }), 'models', MODELS_MS);
  const planned = usePolled(
    () => planFork(client, sessionId, messageId, branch),
    `${messageId} ${branch.model} ${branch.workspace}`,
    MODELS_MS,
  );
  const id = useId();
  const createAndOpen = () =>
    send(async () => {
      const { at = messageId } = planned.data ?? {};
      const { model, workspace } = branch;
      const message = emptyToNull(branch.message.trim());
      const { session } = await client.forkSession(sessionId, { at_message_id: at, model, workspace, message });
      onClose();
      if (session !== null) goTo(formatPlace('sessions', session.id));
    });
  return (
    <Dialog title="Branch from here" onClose={onClose}>
      <form
        onSubmit={(event) => {
          event.preventDefault();
          void createAndOpen();
        }}
      >
        <p class="quiet">A new session begins with the messages up to here. This session stays as it is.</p>
        <div>
          <label for={`${id}-model`}>Model</label>
          <select
            id={`${id}-model`}
            value={branch.model ?? ''}
            onChange={(event) => change({ model: emptyToNull(event.currentTarget.value) })}
          >
            <option value="">As in this session</option>
            {(models.data?.models ?? [])
              .filter(({ configured }) => configured)
              .map((model) => (
                <option key={model.id} value={model.id}>
                  {modelName(model.id)}
                </option>
              ))}
          </select>
        </div>
        <div>
          <label for={`${id}-workspace`}>Workspace</label>
          <select
            id={`${id}-workspace`}
            value={branch.workspace}
            onChange={(event) => change({ workspace: event.currentTarget.value as Workspace })}
          >
            {PLACES.map(({ value, label }) => (
              <option key={value} value={value}>
                {label}
              </option>
            ))}
          </select>
        </div>
        <div>
          <label for={`${id}-message`}>First message</label>
          <textarea
            id={`${id}-message`}
            rows={3}
            placeholder="May be empty"
            value={branch.message}
            onInput={(event) => change({ message: event.currentTarget.value })}
          />
        </div>
        <Planned plan={planned.data} />
        <RequestError error={error ?? planned.error} />
        <div class="dialog-actions">
          <button type="submit" class="button primary" disabled={busy || planned.data === null}>
            Branch
          </button>
        </div>
      </form>
    </Dialog>
  );
}

/** What the fork begins with, and what that costs as input of its first call. */
function Planned({ plan }: { readonly plan: Plan | null }) {
  if (plan === null) return <p class="quiet">The price is being computed…</p>;
  const { fork, moved } = plan;
  const where = moved === 'back' ? 'the last answer before this message' : 'the next answer';
  return (
    <div role="status">
      {moved !== null && <p>A branch begins behind a complete answer: {where} is taken.</p>}
      <p>
        {formatCount(fork.prefix_messages, 'message')} before the branch.{' '}
        {fork.first_call_usd === null ? (
          'Their price is not known.'
        ) : (
          <>
            As input of the first call they cost about <strong class="number">{exactUsd(fork.first_call_usd)}</strong>
            {fork.model !== null && ` with ${modelName(fork.model)}`}.
          </>
        )}
      </p>
      <p class="quiet">Files: {fork.workspace_note}.</p>
    </div>
  );
}
