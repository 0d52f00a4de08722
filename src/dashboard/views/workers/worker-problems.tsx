// Problems of worker definitions, each with its file and line.
import type { WorkerInfo } from '#client/client.ts';
import { formatCount } from '#dashboard/format/format.ts';
import { Badge } from '#dashboard/parts/labels.tsx';

export const SHOWN = 50;
const KINDS = { errors: { word: 'error', tone: 'bad' }, warnings: { word: 'warning', tone: 'warn' } } as const;

/** Errors first; nothing where all is well. `getPlace` gives the address of a worker, where it is not the page's own. */
export function Problems(props: {
  readonly workers: readonly WorkerInfo[];
  readonly getPlace?: ((name: string) => string) | undefined;
}) {
  const of = (kind: 'errors' | 'warnings') =>
    props.workers.flatMap((worker) => worker[kind].map((problem) => ({ kind, worker, problem })));
  const errors = of('errors');
  const all = [...errors, ...of('warnings')];
  if (all.length === 0) return null;
  return (
    <section class="panel problems" aria-label="Problems">
      <header>
        <h2>Problems</h2>
        {errors.length > 0 && <Badge tone="bad">{formatCount(errors.length, 'error')}</Badge>}
        {all.length > errors.length && <Badge tone="warn">{formatCount(all.length - errors.length, 'warning')}</Badge>}
      </header>
      <ul>
        {all.slice(0, SHOWN).map(({ kind, worker, problem: { file, line, path, message } }) => (
          <li key={`${kind} ${worker.origin} ${worker.name} ${file} ${line} ${path} ${message}`}>
            <Badge tone={KINDS[kind].tone}>{KINDS[kind].word}</Badge>{' '}
            {props.getPlace && <a href={props.getPlace(worker.name)}>{where(worker, file, line)}</a>}
            {!props.getPlace && where(worker, file, line)} {path !== '' && <code>{path}</code>} {message}
          </li>
        ))}
      </ul>
      {all.length > SHOWN && <p class="panel-foot quiet">and {formatCount(all.length - SHOWN, 'more')}</p>}
    </section>
  );
}

export function where({ name }: WorkerInfo, file: string | null, line: number | null): string {
  if (file === null) return name;
  if (line === null) return file;
  return `${file}:${line}`;
}

/** Whether it can be called, and changed. */
export function State({ worker }: { readonly worker: WorkerInfo }) {
  return (
    <>
      {!worker.valid && <Badge tone="bad">{formatCount(worker.errors.length, 'error')}</Badge>}
      {worker.locked && <Badge>locked</Badge>}
    </>
  );
}
