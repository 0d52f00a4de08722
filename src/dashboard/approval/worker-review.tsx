// A worker that a model wants to make, as a change: against the one of its name, and what a person changes of it.
import { useEffect, useState } from 'preact/hooks';
import { ApiError, type Confirmation } from '#client/client.ts';
import { useApi } from '../data/api.ts';
import { Diff } from '../parts/diff.tsx';

/** Every line is new unless there is a worker of this name, which can only have come since the question was asked. */
export function WorkerReview(props: {
  readonly confirmation: Confirmation;
  readonly name: string;
  readonly yaml: string;
}) {
  const { name, yaml } = props;
  const there = useDefinition(props.confirmation.root_session_id, name);
  const head = there === null ? `${name}: a new worker` : `${name}: there is a worker of this name by now`;
  return <Diff name={`Definition of ${name}`} head={head} old={there} fresh={yaml} />;
}

/** What the draft says otherwise than the model; nothing while they are the same. */
export function DraftChange({ proposed, draft }: { readonly proposed: string; readonly draft: string }) {
  if (draft === proposed) return null;
  return <Diff name="Your change" head="Your change" old={proposed} fresh={draft} />;
}

/** Its definition as YAML; null where there is none, or none that can be read. */
function useDefinition(session: string, name: string): string | null {
  const { client, failed } = useApi();
  const [yaml, setYaml] = useState<string | null>(null);
  useEffect(() => {
    const gone = new AbortController();
    const { signal } = gone;
    const find = async () => {
      const { workspace_path } = await client.getSession(session, { signal });
      const found = await client.getWorkerDefinition(name, { workspace_path, session_id: session }, { signal });
      setYaml(found.yaml);
    };
    find().catch((error: unknown) => {
      if (!signal.aborted && !(error instanceof ApiError && error.code === 'not_found')) failed(error);
    });
    return () => gone.abort();
  }, [client, failed, session, name]);
  return yaml;
}
