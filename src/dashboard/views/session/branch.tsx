// "Branch from here": a fork behind a message, with its price before it is made (21 §4).

import type { ComponentChildren } from 'preact';
import { useId, useState } from 'preact/hooks';
import {
  ApiError,
  type ForkedSession,
  type Message,
  type MetisClient,
  type Session,
  type SessionComparison,
} from '#client/client.ts';
import { useApi } from '#dashboard/data/api.ts';
import { usePolled } from '#dashboard/data/queries.ts';
import { useRequest } from '#dashboard/data/use-request.ts';
import { duration, emptyToNull, exactUsd, formatCount, formatNumber, modelName } from '#dashboard/format/format.ts';
import { Icon, ModelName, Money } from '#dashboard/parts/labels.tsx';
import { Markdown } from '#dashboard/parts/markdown.tsx';
import { Clipped, Dialog, Empty, Failure, RequestError, Skeleton } from '#dashboard/parts/panels.tsx';
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
  const changeBranch = (part: Partial<Branch>) => setBranch({ ...branch, ...part });
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
            onChange={(event) => changeBranch({ model: emptyToNull(event.currentTarget.value) })}
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
            onChange={(event) => changeBranch({ workspace: event.currentTarget.value as Workspace })}
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
            onInput={(event) => changeBranch({ message: event.currentTarget.value })}
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

const PAGE = 200;

export function ForkOrigin({ session }: { readonly session: Session }) {
  const { client } = useApi();
  const { busy, error, send } = useRequest();
  const [messages, setMessages] = useState<readonly Message[] | null>(null);
  const { forked_from: origin } = session;
  if (origin === null) return null;
  const loadMessages = () =>
    send(async () => setMessages((await client.listMessages(session.id, { prefix: true, limit: PAGE })).messages));
  return (
    <section class="task" aria-label="Branch">
      <h2>
        Branched from <a href={formatPlace('sessions', origin.session_id)}>another session</a>
      </h2>
      {messages === null && (
        <button type="button" class="button ghost" disabled={busy} onClick={() => void loadMessages()}>
          Show the messages before the branch
        </button>
      )}
      <RequestError error={error} />
      {messages?.map((message) => (
        <Earlier key={message.id} message={message} />
      ))}
    </section>
  );
}

function Earlier({ message }: { readonly message: Message }) {
  const text = message.content
    .map((block) => {
      if (block.type === 'text') return block.text;
      if (block.type === 'tool_use') return `[${block.name}]`;
      return '';
    })
    .filter((line) => line !== '')
    .join('\n');
  if (text === '') return null;
  return (
    <div class="earlier">
      <span class="quiet">{message.role === 'user' ? 'You' : 'Answer'}</span>
      <Clipped text={text}>{(shown) => <div class="prose">{shown}</div>}</Clipped>
    </div>
  );
}

type Side = SessionComparison['a'];
type Difference = NonNullable<SessionComparison['first_difference']>;

/** @param other the session to compare with; null = there is none */
export function CompareView({ session, other }: { readonly session: Session; readonly other: string | null }) {
  const { client } = useApi();
  const { data, error, reload } = usePolled(
    async (signal) => (other === null ? null : client.compareSessions(other, { with: session.id }, { signal })),
    `${session.id} ${other}`,
  );
  if (other === null)
    return (
      <Empty icon="branch" title="Nothing to compare with">
        <p>Branch from a message of this session; the branch is then compared with it here.</p>
      </Empty>
    );
  if (data === null && error !== null)
    return <Failure error={error} title="The sessions could not be compared" retry={reload} />;
  if (data === null) return <Skeleton rows={6} height={48} />;
  const { shared, a, b, first_difference: difference } = data;
  return (
    <section class="compare" aria-label="Comparison" tabIndex={0}>
      <p>
        Both begin with {formatCount(shared.messages, 'message')}; {formatCount(shared.calls, 'model call')} for them
        cost <strong class="number">{exactUsd(shared.cost_usd)}</strong> once.
      </p>
      <div class="compare-columns">
        <Column title={nameSide(session, a)} side={a} step={difference?.a} difference={difference} />
        <Column title={nameSide(session, b)} side={b} step={difference?.b} difference={difference} />
      </div>
    </section>
  );
}

function nameSide(session: Session, side: Side): string {
  if (side.session_id === session.id) return 'This session';
  if (side.session_id === session.forked_from?.session_id) return 'The original';
  return 'The other session';
}

function Column(props: {
  readonly title: string;
  readonly side: Side;
  readonly step: Difference['a'] | undefined;
  readonly difference: Difference | null;
}) {
  const { title, side, step, difference } = props;
  return (
    <section class="compare-column" aria-label={title}>
      <h2>
        <a href={formatPlace('sessions', side.session_id)}>{title}</a>
      </h2>
      <dl class="compare-facts">
        <Fact name="Model">{side.model === null ? 'none yet' : <ModelName id={side.model} />}</Fact>
        <Fact name="Cost">
          <Money usd={side.cost_usd} />
        </Fact>
        <Fact name="Model calls">{formatNumber(side.calls)}</Fact>
        <Fact name="Tool calls">{formatNumber(side.tool_calls)}</Fact>
        <Fact name="Workers">{formatNumber(side.workers)}</Fact>
        <Fact name="Input tokens">{formatNumber(side.input_tokens)}</Fact>
        <Fact name="Output tokens">{formatNumber(side.output_tokens)}</Fact>
        <Fact name="Time">{duration(side.wall_time_seconds * 1000)}</Fact>
        <Fact name="Changed files">{formatNumber(side.changed_files.length)}</Fact>
      </dl>
      {side.changed_files.length > 0 && (
        <ul class="compare-files">
          {side.changed_files.map(({ path, change }) => (
            <li key={path}>
              <code>{path}</code> <span class="quiet">{change}</span>
            </li>
          ))}
        </ul>
      )}
      {difference !== null && (
        <>
          <h3>First difference: message {formatNumber(difference.index + 1)} behind the shared ones</h3>
          {step == null ? (
            <p class="quiet">no message</p>
          ) : (
            <p class="prose">
              <span class="quiet">{step.role}:</span> {step.text}
            </p>
          )}
        </>
      )}
      <h3>Last answer</h3>
      {side.final_text === null ? (
        <p class="quiet">none yet</p>
      ) : (
        <Clipped text={side.final_text}>{(shown) => <Markdown text={shown} />}</Clipped>
      )}
    </section>
  );
}

function Fact({ name, children }: { readonly name: string; readonly children: ComponentChildren }) {
  return (
    <div>
      <dt>{name}</dt>
      <dd>{children}</dd>
    </div>
  );
}
