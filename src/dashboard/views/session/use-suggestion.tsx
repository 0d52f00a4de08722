// "Use it for this workspace": the model that slot 4 suggested, written into the workspace's routing file after a look at the change (12 §12.4, 03 §6.5).
import { useState } from 'preact/hooks';
import { useApi } from '#dashboard/data/api.ts';
import { usePolled } from '#dashboard/data/queries.ts';
import { useRequest } from '#dashboard/data/use-request.ts';
import { Diff } from '#dashboard/parts/diff.tsx';
import { Dialog, Failure, RequestError, Skeleton } from '#dashboard/parts/panels.tsx';

/** Not asked again by itself; what is written is what was shown last. */
const NEVER_MS = 2 ** 31 - 1;

export function UseSuggestion(props: { readonly sessionId: string; readonly model: string }) {
  const [asking, setAsking] = useState(false);
  const [written, setWritten] = useState<string | null>(null);
  return (
    <>
      {' '}
      {written === null && (
        <button type="button" class="button" onClick={() => setAsking(true)}>
          Use it for this workspace
        </button>
      )}
      {written !== null && (
        <span role="status">
          It is the default in <code>{written}</code>.
        </span>
      )}
      {asking && (
        <ConfirmDefault
          {...props}
          onClose={(file) => {
            setAsking(false);
            if (file !== null) setWritten(file);
          }}
        />
      )}
    </>
  );
}

/** `onClose` is given the file that holds the default now, or null. */
function ConfirmDefault(props: {
  readonly sessionId: string;
  readonly model: string;
  readonly onClose: (file: string | null) => void;
}) {
  const { sessionId, model, onClose } = props;
  const { client } = useApi();
  const { busy, error, send } = useRequest();
  const plan = usePolled(
    async (signal) => {
      const { workspace_path } = await client.getSession(sessionId, { signal });
      const change = await client.setDefaultModel({ workspace_path, model, dry_run: true }, { signal });
      return { workspace_path, change };
    },
    `${sessionId} ${model}`,
    NEVER_MS,
  );
  const writeDefault = async () => {
    if (plan.data === null) return;
    const { workspace_path, change } = plan.data;
    const { previous_sha256 } = change;
    const isDone = await send(() => client.setDefaultModel({ workspace_path, model, previous_sha256 }));
    if (isDone) onClose(change.path);
    // The file has changed: it is shown as it is now.
    else plan.reload();
  };
  const change = plan.data?.change ?? null;
  const isSame = change !== null && change.text === change.previous_text;
  return (
    <Dialog title="Use it for this workspace" onClose={() => onClose(null)}>
      <div class="dialog-body">
        {plan.data === null && plan.error === null && <Skeleton rows={3} />}
        {plan.error !== null && <Failure error={plan.error} title="The file cannot be changed" retry={plan.reload} />}
        {plan.data !== null && change !== null && (
          <>
            <p>
              Turns in <code>{plan.data.workspace_path}</code> that no message, session or rule gives another model get{' '}
              <code>{change.model}</code>.
            </p>
            {isSame && <p>It is the default already.</p>}
            {!isSame && (
              <Diff
                name={`Change of ${change.path}`}
                head={change.path}
                old={change.previous_text}
                fresh={change.text}
              />
            )}
            {change.warnings.map((warning) => (
              <p key={warning} class="stat-warning">
                {warning}
              </p>
            ))}
          </>
        )}
        <RequestError error={error} />
        <div class="dialog-actions">
          <button type="button" class="button" onClick={() => onClose(null)}>
            Cancel
          </button>
          <button
            type="button"
            class="button primary"
            disabled={busy || change === null || isSame}
            onClick={writeDefault}
          >
            Write the file
          </button>
        </div>
      </div>
    </Dialog>
  );
}
