// What a person can do with a worker: keep one that a session made, lock one, unlock one.
import { useState } from 'preact/hooks';
import type { WorkerDetail } from '#client/client.ts';
import { explain, issuesOf, useApi } from '#dashboard/data/api.ts';
import { Dialog } from '#dashboard/parts/dialog.tsx';

export function WorkerTools(props: {
  readonly worker: WorkerDetail;
  readonly workspace: string;
  readonly onChanged: () => void;
}) {
  const { worker, workspace, onChanged } = props;
  const { client } = useApi();
  const { name, definition, yaml } = worker;
  const [asking, setAsking] = useState(false);
  if (definition === null || yaml === null || worker.read_only !== (worker.origin === 'session')) return null;
  const step =
    worker.origin === 'session'
      ? {
          word: 'Keep in the project',
          says: `Its definition is written to .metis/workers/${name}.yaml, where every session of this workspace finds it.`,
          act: () => client.createWorkerDefinition({ workspace_path: workspace, yaml }),
        }
      : {
          word: definition.locked ? 'Unlock' : 'Lock',
          says: definition.locked
            ? 'Anybody may change it again. Comments in its file stay.'
            : 'It is changed by force alone from then on. Comments in its file stay.',
          act: () =>
            client.replaceWorkerDefinition(name, {
              workspace_path: workspace,
              definition: { ...definition, locked: !definition.locked },
              force: definition.locked,
            }),
        };
  return (
    <div class="tools">
      <button type="button" class="button" onClick={() => setAsking(true)}>
        {step.word}
      </button>
      {asking && (
        <Sure
          title={`${step.word}: ${name}`}
          word={step.word}
          says={step.says}
          act={step.act}
          onClose={(done) => {
            setAsking(false);
            if (done) onChanged();
          }}
        />
      )}
    </div>
  );
}

function Sure(props: {
  readonly title: string;
  readonly word: string;
  readonly says: string;
  readonly act: () => Promise<unknown>;
  readonly onClose: (done: boolean) => void;
}) {
  const { failed } = useApi();
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState<unknown>(null);
  const act = async () => {
    setBusy(true);
    setError(null);
    try {
      await props.act();
      props.onClose(true);
    } catch (reason) {
      failed(reason);
      setError(reason);
      setBusy(false);
    }
  };
  return (
    <Dialog title={props.title} onClose={() => props.onClose(false)}>
      <div class="dialog-body">
        <p>{props.says}</p>
        {error !== null && (
          <div class="field-error" role="alert">
            <p>{explain(error)}</p>
            {issuesOf(error).map(({ path, message }) => (
              <p key={`${path} ${message}`}>
                <code>{path}</code> {message}
              </p>
            ))}
          </div>
        )}
        <div class="dialog-actions">
          <button type="button" class="button" onClick={() => props.onClose(false)}>
            Leave it
          </button>
          <button type="button" class="button primary" disabled={busy} onClick={act}>
            {props.word}
          </button>
        </div>
      </div>
    </Dialog>
  );
}
