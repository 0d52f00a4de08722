// Which named worker a new session is, and which files its first message hands over (13 §5, §10).
import { useId } from 'preact/hooks';
import type { WorkerInfo } from '#client/client.ts';
import { useApi } from '#dashboard/data/api.ts';
import { usePolled } from '#dashboard/data/polled.ts';

const EVERY_MS = 60_000;
const PAGE = 200;

/** Those of a workspace that can be called; none while it is no workspace. */
export function useCallable(workspace: string): readonly WorkerInfo[] {
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

export function WorkerChoice(props: {
  readonly workers: readonly WorkerInfo[];
  readonly value: string;
  readonly onChange: (name: string) => void;
}) {
  const id = useId();
  return (
    <div>
      <label for={id}>Named worker</label>
      <select id={id} value={props.value} onChange={(event) => props.onChange(event.currentTarget.value)}>
        <option value="">None, a planner</option>
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
      <label for={id}>Files handed over</label>
      <textarea
        id={id}
        rows={2}
        placeholder="Paths in the workspace, one a line"
        spellcheck={false}
        value={props.text}
        onInput={(event) => props.onText(event.currentTarget.value)}
      />
    </div>
  );
}

/** Paths as they stand, one a line. */
export function attachmentsOf(text: string): string[] {
  return text
    .split('\n')
    .map((line) => line.trim())
    .filter((line) => line !== '');
}
