// What a worker may touch, in small: its folders, its tools, whom it may call, whether it takes files.
import { Fragment } from 'preact';
import type { WorkerInfo } from '#client/client.ts';
import { Badge } from '#dashboard/parts/badge.tsx';
import { placeOf } from '#dashboard/shell/place.ts';

export function MayTouch({ worker }: { readonly worker: WorkerInfo }) {
  const { sandboxes, tools, allow_workers, accepts_attachments } = worker;
  if (!worker.valid) return <span class="quiet">cannot be called</span>;
  return (
    <ul class="touch">
      {sandboxes.map(({ name, path, mode }) => (
        <li key={`sandbox ${name}`} title={`${name}: ${mode === 'rw' ? 'reads and writes' : 'reads'} ${path}`}>
          <Badge tone={mode === 'rw' ? 'warn' : 'plain'}>
            {mode === 'rw' ? 'write' : 'read'} {path === '.' ? 'everything' : path}
          </Badge>
        </li>
      ))}
      {sandboxes.length === 0 && <li class="quiet">no folders</li>}
      {tools.map((tool) => (
        <li key={`tool ${tool}`}>
          <Badge>{tool}</Badge>
        </li>
      ))}
      {allow_workers.map((name) => (
        <li key={`worker ${name}`} title="may call this worker">
          <Badge tone="worker">{name === '*' ? 'every worker' : name}</Badge>
        </li>
      ))}
      {accepts_attachments && <li class="quiet">takes attachments</li>}
    </ul>
  );
}

/** A path that breaks behind its slashes rather than within a name. */
function breakable(path: string) {
  return path.split(/(?<=\/)/).map((part, i) => (
    <Fragment key={`${i} ${part}`}>
      {part}
      <wbr />
    </Fragment>
  ));
}

/** Where it comes from: the session that made it, or its file. */
export function Source({ worker }: { readonly worker: WorkerInfo }) {
  const { origin, path, read_only, created_by_session_id, edited_by_user } = worker;
  if (origin === 'session') {
    return (
      <>
        {created_by_session_id === null ? (
          'a session'
        ) : (
          <a href={placeOf('sessions', created_by_session_id)}>a session</a>
        )}
        {edited_by_user && <span class="quiet">, edited by a person</span>}
      </>
    );
  }
  return (
    <>
      <span class="worker-file">{path === null ? '–' : breakable(path)}</span> {read_only && <Badge>only read</Badge>}
    </>
  );
}
