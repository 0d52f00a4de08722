// Where one writes to the planner, chooses its model and stops its turn.
import { useEffect, useRef, useState } from 'preact/hooks';
import { ApiError, type MetisClient, type Session } from '#client/client.ts';
import { useApi } from '#dashboard/data/api.ts';
import { keepDraft, takeDraft } from '#dashboard/data/page-memory.ts';
import { usePolled } from '#dashboard/data/queries.ts';
import { useRequest } from '#dashboard/data/use-request.ts';
import { emptyToNull, modelName } from '#dashboard/format/format.ts';
import { type Choice, Menu } from '#dashboard/parts/fields.tsx';
import { Icon } from '#dashboard/parts/labels.tsx';
import { RequestError } from '#dashboard/parts/panels.tsx';
import { Attachments, parseAttachments } from '../sessions/new-session.tsx';

/** Models are read again this seldom: they change with the server's configuration alone. */
const MODELS_MS = 60_000;

export function Composer(props: {
  readonly session: Session;
  /** Of a running turn. */
  readonly turnId: string | null;
  readonly onChanged: () => void;
}) {
  const { session, turnId } = props;
  const { client } = useApi();
  const [refused] = useState(() => takeDraft(session.id));
  const { busy, error, send } = useRequest(refused?.error ?? null);
  const [text, setText] = useState(refused?.text ?? '');
  const [files, setFiles] = useState(refused?.files ?? null);
  const area = useRef<HTMLTextAreaElement>(null);
  // What is not sent is there when the person comes back.
  const written = useRef({ text, files, error: null });
  written.current = { text, files, error: null };
  useEffect(() => () => keepDraft(session.id, written.current), [session.id]);
  const models = usePolled((signal) => client.listModels({ signal }), 'models', MODELS_MS);

  const takes = useTakesFiles(session) && turnId === null;

  useEffect(() => {
    const element = area.current;
    if (element === null) return;
    element.style.height = 'auto';
    element.style.height = `${element.scrollHeight + 2}px`;
  }, [text]);

  const runStep = async (step: () => Promise<unknown>) => {
    const isDone = await send(step);
    if (isDone) props.onChanged();
    return isDone;
  };
  const sendMessage = async () => {
    if (text.trim() === '' || busy) return;
    // Files do not go with a message to a turn that runs (05 §3.2).
    const attachments = takes ? parseAttachments(files ?? '') : [];
    const isTurnOpen = turnId !== null || session.current_turn_id !== null;
    const sent = await runStep(() => submitMessage(client, session.id, { content: text, attachments, isTurnOpen }));
    if (sent) {
      setText('');
      setFiles(null);
    }
    area.current?.focus();
  };
  const model = session.pending_active_model === null ? session.active_model : session.pending_active_model.model;
  const choices: Choice[] = [
    { value: '', label: 'Chosen by routing' },
    ...(models.data?.models ?? [])
      .filter(({ configured }) => configured)
      .map((model) => ({ value: model.id, label: modelName(model.id), hint: model.tier ?? undefined })),
  ];
  // With an effort, which no model of the list has in its name.
  if (model !== null && choices.every(({ value }) => value !== model))
    choices.push({ value: model, label: modelName(model) });
  return (
    <form
      class="composer"
      onSubmit={(event) => {
        event.preventDefault();
        void sendMessage();
      }}
    >
      <RequestError error={error} />
      <textarea
        ref={area}
        rows={1}
        aria-label="Message"
        placeholder={turnId === null ? `Write to ${getAddressee(session)}…` : 'Add a message to the running turn…'}
        value={text}
        onInput={(event) => setText(event.currentTarget.value)}
        onKeyDown={(event) => {
          if (event.key !== 'Enter' || event.shiftKey || event.isComposing) return;
          event.preventDefault();
          void sendMessage();
        }}
      />
      {takes && files !== null && <Attachments text={files} onText={setFiles} />}
      <div class="composer-foot">
        {takes && (
          <button
            type="button"
            class="button"
            aria-expanded={files !== null}
            onClick={() => setFiles(files === null ? '' : null)}
          >
            Files
          </button>
        )}
        {!session.is_worker && (
          <Menu
            label="Model"
            choices={choices}
            value={model ?? ''}
            onChoose={(value) =>
              void runStep(() => client.updateSession(session.id, { active_model: emptyToNull(value) }))
            }
          />
        )}
        {session.swap_queued && <span class="quiet">applies from the next turn</span>}
        <span class="composer-hint quiet">Enter sends, Shift+Enter adds a line</span>
        {turnId !== null && (
          <button
            type="button"
            class="button"
            title="Start no further tool and answer with what there is"
            disabled={busy || session.current_turn_status === 'cancelling'}
            onClick={() => void runStep(() => client.concludeTurn(session.id, turnId))}
          >
            Conclude
          </button>
        )}
        {turnId !== null && (
          <button
            type="button"
            class="button danger"
            disabled={busy || session.current_turn_status === 'cancelling'}
            onClick={() => void runStep(() => client.cancelTurn(session.id, turnId))}
          >
            <Icon name="stop" />
            Cancel turn
          </button>
        )}
        <button type="submit" class="button primary" disabled={busy || text.trim() === ''}>
          <Icon name="send" />
          Send
        </button>
      </div>
    </form>
  );
}

/** Whom one writes to. */
export function getAddressee({ worker_name }: Session): string {
  return worker_name ?? 'the planner';
}

/** Whether it is a session on a named worker that takes files (13 §5). */
function useTakesFiles({ worker_name, is_worker, workspace_path, id }: Session): boolean {
  const { client } = useApi();
  const name = is_worker ? null : worker_name;
  const askDefinition = async (signal: AbortSignal) => {
    if (name === null) return null;
    return client.getWorkerDefinition(name, { workspace_path, session_id: id }, { signal });
  };
  const { data } = usePolled(askDefinition, `${id} ${name}`, MODELS_MS);
  return data?.accepts_attachments ?? false;
}

/** A message without an open turn may name its model (`@alias`) and be longer than one that steers a turn. */
async function submitMessage(
  client: MetisClient,
  sessionId: string,
  message: { readonly content: string; readonly attachments: readonly string[]; readonly isTurnOpen: boolean },
): Promise<unknown> {
  const { content, attachments, isTurnOpen } = message;
  if (attachments.length > 0) return client.submitTurn(sessionId, { content, attachments: [...attachments] });
  const steer = () => client.submitTurn(sessionId, { content, if_busy: 'steer' });
  if (isTurnOpen) return steer();
  try {
    return await client.submitTurn(sessionId, { content });
  } catch (error) {
    // A turn began since the session was read.
    if (error instanceof ApiError && error.code === 'turn_in_flight') return steer();
    throw error;
  }
}
