// What a worker changed in files: the calls that did, as lines that go and come.
import { useState } from 'preact/hooks';
import type { Message } from '#client/client.ts';
import { Change, type FileChange, readChange } from '#dashboard/approval/arguments.tsx';
import { explain, useApi } from '#dashboard/data/api.ts';
import { formatCount } from '#dashboard/format/format.ts';
import { executedInput } from './edited-call.ts';
import { mapResults } from './tool-card.tsx';

const MESSAGES = 200;

/** Its calls are asked for when one opens it. Changes by commands, and of workers below it, are named without their lines. */
export function WorkerChanges({ worker, paths }: { readonly worker: string; readonly paths: readonly string[] }) {
  const { client, reportFailure } = useApi();
  const [changes, setChanges] = useState<readonly FileChange[] | null>(null);
  const [error, setError] = useState<string | null>(null);
  const load = async () => {
    if (changes !== null) return;
    try {
      const { messages } = await client.listMessages(worker, { limit: MESSAGES });
      setChanges(listChanges(messages));
    } catch (reason) {
      reportFailure(reason);
      setError(explain(reason));
    }
  };
  const without = paths.filter((path) => changes?.every((change) => !path.endsWith(change.path)));
  return (
    <details class="worker-changes" onToggle={(event) => event.currentTarget.open && void load()}>
      <summary>{formatCount(paths.length, 'changed file')}</summary>
      {changes === null && error === null && <p class="quiet">Loading…</p>}
      {error !== null && <p class="field-error">{error}</p>}
      {changes?.map((change, i) => (
        <Change key={`${i} ${change.path}`} change={change} />
      ))}
      {changes !== null && without.length > 0 && (
        <p class="changed-files">
          {without.map((path) => (
            <code key={path}>{path}</code>
          ))}
        </p>
      )}
    </details>
  );
}

/** Of calls that succeeded, as they ran. */
function listChanges(messages: readonly Message[]): readonly FileChange[] {
  const results = mapResults(messages);
  return messages
    .flatMap(({ content }) => content)
    .flatMap((block) => {
      if (block.type !== 'tool_use') return [];
      const result = results.get(block.id);
      if (result === undefined || result.is_error) return [];
      return readChange(block.name, executedInput(block.input, result) ?? block.input) ?? [];
    });
}
