// What a definition allows and limits: folders, tools and when they ask, files handed over, whom it may call (13 §2).
import { type ComponentChildren, Fragment } from 'preact';
import { useState } from 'preact/hooks';
import type { WorkerDetail, WorkerInfo } from '#client/client.ts';
import { useApi, useMay } from '#dashboard/data/api.ts';
import { formatCount } from '#dashboard/format/format.ts';
import { Badge, ModelName, NoValue, type Tone } from '#dashboard/parts/labels.tsx';
import { ConfirmDialog } from '#dashboard/parts/panels.tsx';
import { formatPlace } from '#dashboard/shell/place.ts';

type Definition = NonNullable<WorkerDetail['definition']>;
type Rule = Definition['tool_rules'][string];

const ACCESS = {
  ro: { word: 'read', words: 'read', tone: 'plain' },
  rw: { word: 'write', words: 'read and write', tone: 'warn' },
} as const;

export function WorkerLimits({ definition }: { readonly definition: Definition }) {
  const { sandboxes, tools, tool_rules, allow_workers, attachment_policy: policy } = definition;
  return (
    <section class="panel" aria-label="Permissions and limits">
      <h2>Permissions and limits</h2>
      <dl class="limits">
        <Limit name="Folders" none="none">
          {Object.values(sandboxes).map(({ name, path, mode, allowed_suffixes, max_bytes }) => (
            <li key={name}>
              <code>{name}</code> <Badge tone={ACCESS[mode].tone}>{ACCESS[mode].words}</Badge> {path}{' '}
              <span class="quiet">
                {suffixes(allowed_suffixes)}, {formatCount(max_bytes, 'byte')} per file
              </span>
            </li>
          ))}
        </Limit>
        <Limit name="Tools" none="only the file tools of the folders">
          {tools.map((tool) => (
            <li key={tool}>
              <code>{tool}</code>
            </li>
          ))}
        </Limit>
        <Limit name="Approvals" none="as configured on the server">
          {Object.values(tool_rules).map((rule) => (
            <li key={rule.name}>
              <code>{rule.name}</code> <Badge tone={describeMode(rule).tone}>{describeMode(rule).word}</Badge>{' '}
              <span class="quiet">{rule.description}</span>
            </li>
          ))}
        </Limit>
        <Limit name="Callable workers" none="none">
          {allow_workers.map((name) => (
            <li key={name}>
              <code>{name.replace(/^\*$/, 'all workers of the project')}</code>
            </li>
          ))}
        </Limit>
        <Limit name="Attached files" none="default: up to 4 files, 10,000,000 bytes in total">
          {policy !== null && (
            <li>
              {policy.max_attachments === 0 && 'none'}
              {policy.max_attachments > 0 &&
                `up to ${formatCount(policy.max_attachments, 'file')}, ${formatCount(policy.max_total_bytes, 'byte')} in total, ${suffixes(policy.allowed_suffixes)}`}
              {policy.denied_suffixes.length > 0 && ` except ${policy.denied_suffixes.join(' ')}`}
            </li>
          )}
        </Limit>
        <Limit name="Answer" none="text">
          {definition.output_schema_ref !== null && (
            <li>
              JSON of the schema <code>{definition.output_schema_ref}</code>
            </li>
          )}
        </Limit>
        <Limit name="Limits" none="none">
          {definition.timeout_seconds !== null && (
            <li>at most {formatCount(definition.timeout_seconds, 'second')} per call</li>
          )}
          {definition.max_tokens !== null && <li>at most {formatCount(definition.max_tokens, 'token')} per answer</li>}
        </Limit>
      </dl>
    </section>
  );
}

/** A name and its entries; without any, what holds then. */
function Limit(props: { readonly name: string; readonly none: string; readonly children: ComponentChildren }) {
  const entries = [props.children].flat().filter((entry) => entry !== null && entry !== false);
  return (
    <div>
      <dt>{props.name}</dt>
      <dd>
        {entries.length === 0 && <span class="quiet">{props.none}</span>}
        {entries.length > 0 && <ul>{props.children}</ul>}
      </dd>
    </div>
  );
}

function describeMode({ allowed, approval_required }: Rule): { readonly word: string; readonly tone: Tone } {
  if (!allowed) return { word: 'forbidden', tone: 'bad' };
  if (approval_required === null) return { word: 'as configured', tone: 'plain' };
  if (approval_required) return { word: 'needs approval', tone: 'warn' };
  return { word: 'runs without approval', tone: 'ok' };
}

function suffixes(allowed: readonly string[]): string {
  if (allowed.length === 0) return 'all kinds';
  return allowed.map((suffix) => suffix || 'without suffix').join(' ');
}

// What a worker may touch, in small: its folders, its tools, whom it may call, whether it takes files.

export function MayTouch({ worker }: { readonly worker: WorkerInfo }) {
  const { sandboxes, tools, allow_workers, accepts_attachments } = worker;
  if (!worker.valid) return <span class="quiet">cannot be called</span>;
  return (
    <ul class="touch">
      {sandboxes.map(({ name, path, mode }) => (
        <li key={`sandbox ${name}`} title={`${name}: ${ACCESS[mode].words} ${path}`}>
          <Badge tone={ACCESS[mode].tone}>
            {ACCESS[mode].word} {path.replace(/^\.$/, 'everything')}
          </Badge>
        </li>
      ))}
      {sandboxes.length === 0 && <li class="quiet word">no folders</li>}
      {tools.map((tool) => (
        <li key={`tool ${tool}`}>
          <Badge>{tool}</Badge>
        </li>
      ))}
      {allow_workers.map((name) => (
        <li key={`worker ${name}`} title="may call this worker">
          <Badge tone="worker">{name.replace(/^\*$/, 'every worker')}</Badge>
        </li>
      ))}
      {accepts_attachments && <li class="quiet word">accepts attachments</li>}
    </ul>
  );
}

/** The model that a definition names, its tier, or who chooses. */
export function WorkerModel({ worker: { model, tier, valid } }: { readonly worker: WorkerInfo }) {
  if (model !== null) return <ModelName id={model} />;
  if (tier !== null) return <>{tier}</>;
  if (valid) return <span class="quiet">chosen by routing</span>;
  return <NoValue />;
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
        {created_by_session_id === null && 'a session'}
        {created_by_session_id !== null && <a href={formatPlace('sessions', created_by_session_id)}>a session</a>}
        {edited_by_user && <span class="quiet">, edited by a user</span>}
      </>
    );
  }
  return (
    <>
      <span class="worker-file">{breakable(path ?? '–')}</span> {read_only && <Badge>read only</Badge>}
    </>
  );
}

// What a person can do with a worker: keep one that a session made, lock one, unlock one.

export function WorkerTools(props: {
  readonly worker: WorkerDetail;
  readonly workspace: string;
  readonly onChanged: () => void;
}) {
  const { worker, workspace, onChanged } = props;
  const { client } = useApi();
  const { name, definition, yaml } = worker;
  const [asking, setAsking] = useState(false);
  const may = useMay();
  if (definition === null || yaml === null || worker.read_only !== (worker.origin === 'session')) return null;
  const keep = {
    word: 'Keep in the project',
    text: `The server writes the definition to .metis/workers/${name}.yaml. Every session of this workspace can then use it.`,
    act: () => client.createWorkerDefinition({ workspace_path: workspace, yaml }),
  };
  const replaceLocked = (locked: boolean) =>
    client.replaceWorkerDefinition(name, {
      workspace_path: workspace,
      definition: { ...definition, locked },
      force: definition.locked,
    });
  const lock = {
    word: 'Lock',
    text: 'Sessions can no longer change the worker. Comments in the file stay.',
    act: () => replaceLocked(true),
  };
  const unlock = {
    word: 'Unlock',
    text: 'Sessions can change the worker again. Comments in the file stay.',
    act: () => replaceLocked(false),
  };
  let step = lock;
  if (definition.locked) step = unlock;
  if (worker.origin === 'session') step = keep;
  if (!may(step === keep ? 'createWorkerDefinition' : 'replaceWorkerDefinition')) return null;
  return (
    <div class="tools">
      <button type="button" class="button" onClick={() => setAsking(true)}>
        {step.word}
      </button>
      {asking && (
        <ConfirmDialog
          title={`${step.word}: ${name}`}
          word={step.word}
          text={step.text}
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
