// What a call was given, word for word; of an edit, which lines go and which come, and of a file to be written its lines.

import { useEffect, useState } from 'preact/hooks';
import { ApiError, type Confirmation } from '#client/client.ts';
import { useApi } from '../data/api.ts';
import { visible } from '../format/format.ts';
import { Diff } from '../parts/diff.tsx';
import { Clipped } from '../parts/panels.tsx';

/** `call` is a call that is about to run, once its input is here; `text` is what is shown of any other. */
export function Arguments(props: {
  readonly call: { readonly tool: string; readonly input: Readonly<Record<string, unknown>> } | null;
  readonly text: string;
}) {
  const { call } = props;
  const change = call && readChange(call.tool, call.input);
  if (change === null) return <Given name="Arguments" text={props.text} />;
  return <Change change={change} />;
}

/** A figure and no region: with many cards on a page there would be as many landmarks. */
function Given({ name, head, text }: { readonly name: string; readonly head?: string; readonly text: string }) {
  return (
    <Clipped text={text}>
      {(shown) => (
        <figure class="code-block" aria-label={name} tabIndex={0}>
          <pre>
            <code>
              {head !== undefined && <span class="diff-file">{visible(head)}</span>}
              {visible(shown)}
            </code>
          </pre>
        </figure>
      )}
    </Clipped>
  );
}

/** A file that is written whole is shown as its text: what was in it before is not known. */
export function Change({ change: { path, old, fresh } }: { readonly change: FileChange }) {
  if (old === null) return <Given name={`Content of ${path}`} head={path} text={fresh} />;
  return <Diff name={`Change of ${path}`} head={path} old={old} fresh={fresh} />;
}

/** What a call would change in a file. */
export interface FileChange {
  readonly path: string;
  /** Null where the whole file is written. */
  readonly old: string | null;
  readonly fresh: string;
}

/** Null for a call that changes no file, or has arguments besides those that a change shows. */
export function readChange(tool: string, input: Readonly<Record<string, unknown>>): FileChange | null {
  if (tool === 'edit_file') return parseEditInput(input);
  if (tool === 'write_file') return parseFileInput(input);
  return null;
}

/** Null unless the arguments are those of an edit and nothing more: nothing may go unseen. */
function parseEditInput(input: Readonly<Record<string, unknown>>): FileChange | null {
  const { path, old, new: fresh, ...rest } = input;
  if (typeof path !== 'string' || typeof old !== 'string' || typeof fresh !== 'string') return null;
  if (Object.keys(rest).length > 0) return null;
  return { path, old, fresh };
}

/** Null unless the arguments are those of a whole file and nothing more. */
function parseFileInput(input: Readonly<Record<string, unknown>>): FileChange | null {
  const { path, content, ...rest } = input;
  if (typeof path !== 'string' || typeof content !== 'string') return null;
  if (Object.keys(rest).length > 0) return null;
  return { path, old: null, fresh: content };
}

// A worker that a model wants to make, as a change: against the one of its name, and what a person changes of it.

/** Every line is new unless there is a worker of this name, which can only have come since the question was asked. */
export function WorkerReview(props: {
  readonly confirmation: Confirmation;
  readonly name: string;
  readonly yaml: string;
}) {
  const { name, yaml } = props;
  const there = useDefinition(props.confirmation.root_session_id, name);
  const shown = { name: `Definition of ${name}`, old: there, fresh: yaml };
  if (there === null) return <Diff {...shown} head={`${name}: a new worker`} />;
  return <Diff {...shown} head={`${name}: a worker of this name exists already`} />;
}

/** The difference between the draft and the model's input; nothing while they are equal. */
export function DraftChange({ proposed, draft }: { readonly proposed: string; readonly draft: string }) {
  if (draft === proposed) return null;
  return <Diff name="Your change" head="Your change" old={proposed} fresh={draft} />;
}

/** Its definition as YAML; null where there is none, or none that can be read. */
function useDefinition(session: string, name: string): string | null {
  const { client, reportFailure } = useApi();
  const [yaml, setYaml] = useState<string | null>(null);
  useEffect(() => {
    const gone = new AbortController();
    const { signal } = gone;
    const loadDefinition = async () => {
      const { workspace_path } = await client.getSession(session, { signal });
      const found = await client.getWorkerDefinition(name, { workspace_path, session_id: session }, { signal });
      setYaml(found.yaml);
    };
    loadDefinition().catch((error: unknown) => {
      if (!signal.aborted && !(error instanceof ApiError && error.code === 'not_found')) reportFailure(error);
    });
    return () => gone.abort();
  }, [client, reportFailure, session, name]);
  return yaml;
}
